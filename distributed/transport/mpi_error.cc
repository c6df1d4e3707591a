#include "distributed/transport/mpi_error.h"

#include <mpi.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::Status CheckMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return absl::InternalError(absl::StrCat(
      call, ": ", std::string(text, static_cast<size_t>(length)), " (code ", code, ")"));
}

}  // namespace gyre
