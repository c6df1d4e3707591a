#include "distributed/transport/open_mpi.h"

#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Where Open MPI puts shared memory unless told otherwise, and what tells it.
constexpr char kSharedMemory[] = "/dev/shm";
constexpr char kSharedMemoryVariable[] = "OMPI_MCA_btl_vader_backing_directory";

// By what messages travel.  Unless told otherwise each rank listens on every network for TCP, also
// where nobody can come.
constexpr char kWaysVariable[] = "OMPI_MCA_btl";
constexpr char kWaysOnOneHost[] = "self,vader";

// Over TCP Open MPI asks the receiver before it sends more than 64 KB, and the answer queues behind
// what travels the other way: with four segments under way the link then stands still for a tenth
// of the time.  Longer than collectives' segments, with Open MPI's headers, it goes at once.
constexpr char kAtOnceVariable[] = "OMPI_MCA_btl_tcp_eager_limit";
constexpr char kAtOnceBytes[] = "327680";

// A message each way between every two of them: both have opened the other's segment then.
absl::Status MeetAll(MPI_Comm ranks) {
  int rank = 0, size = 0;
  RETURN_IF_ERROR(CheckMpi(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank"));
  RETURN_IF_ERROR(CheckMpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size"));
  for (int distance = 1; distance < size; ++distance) {
    const int to = (rank + distance) % size, from = (rank + size - distance) % size;
    RETURN_IF_ERROR(CheckMpi(MPI_Sendrecv(nullptr, 0, MPI_BYTE, to, 0, nullptr, 0, MPI_BYTE, from,
                                          0, ranks, MPI_STATUS_IGNORE),
                             "MPI_Sendrecv"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return absl::InternalError(absl::StrCat(
      call, ": ", std::string(text, static_cast<size_t>(length)), " (code ", code, ")"));
}

absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> SetUpOpenMpi() {
  setenv(kAtOnceVariable, kAtOnceBytes, /*overwrite=*/0);
  if (AnnouncedLocalRank().size == AnnouncedRank().size) {
    setenv(kWaysVariable, kWaysOnOneHost, /*overwrite=*/0);
  }
  // Without /dev/shm Open MPI keeps to its session's folder.
  if (getenv(kSharedMemoryVariable) != nullptr || access(kSharedMemory, W_OK) != 0) return nullptr;
  ASSIGN_OR_RETURN(auto folder, SharedMemoryFolder::Create(kSharedMemory));
  setenv(kSharedMemoryVariable, folder->path().c_str(), 1);
  return folder;
}

absl::Status HideSegments(SharedMemoryFolder* folder) {
  MPI_Comm host = MPI_COMM_NULL;
  RETURN_IF_ERROR(
      CheckMpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
               "MPI_Comm_split_type"));
  const absl::Status met = MeetAll(host);
  RETURN_IF_ERROR(CheckMpi(MPI_Comm_free(&host), "MPI_Comm_free"));
  RETURN_IF_ERROR(met);
  if (folder != nullptr) folder->Hide();
  return absl::OkStatus();
}

}  // namespace gyre
