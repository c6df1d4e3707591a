// mpi_error.h: what an MPI call returned, as a Status.
#pragma once

#include "absl/status/status.h"

namespace gyre {

// Internal, with the library's words, unless `code` is MPI_SUCCESS.  On a thread that may call MPI.
absl::Status CheckMpi(int code, const char* call);

}  // namespace gyre
