// open_mpi.h: settings of Open MPI for this job, before it starts and just after, and the result of
// its calls.
//
// Open MPI reads settings from the environment, where mpirun puts its --mca options.  Variables
// that are already set stay as they are.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "distributed/transport/shared_memory_folder.h"

namespace gyre {

// Internal with MPI's text, unless `code` is MPI_SUCCESS.  Precondition: the thread may call MPI.
absl::Status CheckMpi(int code, const char* call);

// Sets the variables.  Precondition: MPI has not started, no other thread reads the environment.
// Returns the folder of this process's shared memory, or null if the environment names one or
// /dev/shm cannot be written.  Errors: those of SharedMemoryFolder::Create.
absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> SetUpOpenMpi();

// Hides the folder, if any, once all processes of this host have opened its segments.  All ranks
// call it after MPI has started.  Blocks.  Errors: those of MPI.
absl::Status HideSegments(SharedMemoryFolder* folder);

}  // namespace gyre
