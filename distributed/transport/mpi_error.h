// mpi_error.h: the result of an MPI call as a Status.
#pragma once

#include "absl/status/status.h"

namespace gyre {

// Internal with MPI's text, unless `code` is MPI_SUCCESS.  Precondition: the thread may call MPI.
absl::Status CheckMpi(int code, const char* call);

}  // namespace gyre
