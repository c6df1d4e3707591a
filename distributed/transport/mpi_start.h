// mpi_start.h: how Open MPI is told, before it starts and just after, to keep this job to itself.
//
// mpirun hands its own --mca options to the ranks as variables of the environment, which Open MPI
// reads when it starts.  What is set there already is left as it is.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "distributed/transport/shared_memory_folder.h"

namespace gyre {

// Sets those variables.  Call it before MPI starts, while no other thread reads the environment.
// Returns the folder of this process's shared memory; null: somebody else has chosen where it is.
// Errors: those of SharedMemoryFolder::Create.
absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> SetUpOpenMpi();

// Hides the folder (null: there is none) once all processes of this host have opened the segment in
// it.  MPI has started; all ranks call it.  Blocks.  Errors: those of MPI.
absl::Status HideSegments(SharedMemoryFolder* folder);

}  // namespace gyre
