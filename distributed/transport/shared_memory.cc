// shared_memory.cc: see shared_memory.h.
//
// Each rank makes an anonymous file (memfd) and tells the others its process and descriptor; they
// open it under /proc.  A number in the file shows that it is the right one.

#include "distributed/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"
#include "engine/runtime/machine.h"

namespace gyre {
namespace {

// What a rank tells the others of its file; file -1: it has none.
struct Offer {
  int64_t process = 0;
  int64_t file = -1;
  uint64_t bytes = 0;
  uint64_t mark = 0;  // the file's first bytes, until all have opened it
};

// What a rank wants, and what its process has: ranks may be threads of one.
struct Wish {
  int64_t process = 0;
  uint64_t held = 0, bytes = 0;
};

// Of this process's objects, each one's own.
std::atomic<uint64_t> held_bytes = 0;

class File {
 public:
  explicit File(int file) : file_(file) {}
  ~File() {
    if (file_ >= 0) close(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return file_; }

 private:
  const int file_;
};

absl::Status NoRoom(const std::string& what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", strerror(errno)));
}

// `mine` to every other rank of the host, and theirs; result by index.
template <typename T>
absl::StatusOr<std::vector<T>> Exchange(Communicator& communicator, const std::vector<int>& ranks,
                                        const T& mine) {
  const auto all = std::make_shared<std::vector<T>>(ranks.size() + 1, mine);
  const auto swap = [&]() -> absl::Status {
    std::vector<Request> requests;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == communicator.rank()) continue;
      ASSIGN_OR_RETURN(requests.emplace_back(),
                       communicator.Receive(&(*all)[i], sizeof(T), ranks[i], kSharedMemoryTag));
      ASSIGN_OR_RETURN(requests.emplace_back(),
                       communicator.Send(&all->back(), sizeof(T), ranks[i], kSharedMemoryTag));
    }
    for (const Request request : requests) RETURN_IF_ERROR(WaitFor(communicator, request));
    return absl::OkStatus();
  };
  if (absl::Status status = swap(); !status.ok()) {
    Keep(all);
    return status;
  }
  all->pop_back();
  return std::move(*all);
}

// Anonymous memory has no bound of its own: the kernel would end processes to find more.
absl::Status CheckBound(const std::vector<Wish>& wishes, size_t bytes) {
  std::map<int64_t, uint64_t> held;  // by process
  double all = 0;
  for (const Wish& wish : wishes) {
    held[wish.process] = std::max(held[wish.process], wish.held);
    all += static_cast<double>(wish.bytes);
  }
  for (const auto& [process, of_process] : held) all += static_cast<double>(of_process);
  const size_t most = MemoryBytes() / 2;
  if (all <= static_cast<double>(most)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "no room for %d bytes of shared memory: the ranks of this host would have %.0f bytes in all, "
      "expected at most %d, half of its memory",
      bytes, all, most));
}

absl::Status Fill(int file, Offer& offer) {
  if (file < 0) return NoRoom("cannot make shared memory");
  if (const int error = posix_fallocate(file, 0, static_cast<off_t>(offer.bytes)); error != 0) {
    errno = error;
    return NoRoom(absl::StrCat("no room for ", offer.bytes, " bytes of shared memory"));
  }
  if (getrandom(&offer.mark, sizeof(offer.mark), 0) != sizeof(offer.mark) ||
      pwrite(file, &offer.mark, sizeof(offer.mark), 0) != sizeof(offer.mark)) {
    return NoRoom("cannot mark shared memory");
  }
  offer.process = getpid();
  offer.file = file;
  return absl::OkStatus();
}

}  // namespace

std::vector<int> RanksOfHost(const Communicator& communicator) {
  const std::vector<int>& hosts = communicator.hosts();
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (hosts[rank] == hosts[communicator.rank()]) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status SharedMemory::Map(int index, int file, size_t bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (data == MAP_FAILED) return NoRoom("cannot map shared memory");
  views_[index] = {static_cast<std::byte*>(data), bytes};
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(Communicator& communicator,
                                                                   size_t bytes) {
  GYRE_CHECK(bytes >= sizeof(Offer::mark));
  const std::vector<int> ranks = RanksOfHost(communicator);
  std::unique_ptr<SharedMemory> memory(new SharedMemory);
  memory->views_.resize(ranks.size());
  const File own(memfd_create("gyre", MFD_CLOEXEC));
  Offer mine{.bytes = bytes};
  ASSIGN_OR_RETURN(const std::vector<Wish> wishes,
                   Exchange(communicator, ranks, Wish{getpid(), held_bytes, bytes}));
  absl::Status status = CheckBound(wishes, bytes);
  if (status.ok()) status = Fill(own.get(), mine);
  if (status.ok()) {
    held_bytes += memory->counted_ = bytes;
  } else {
    mine.file = -1;
  }
  ASSIGN_OR_RETURN(const std::vector<Offer> offers, Exchange(communicator, ranks, mine));
  for (size_t i = 0; i < ranks.size() && status.ok(); ++i) {
    const Offer& offer = offers[i];
    const int index = static_cast<int>(i);
    if (ranks[i] == communicator.rank()) {
      memory->own_ = index;
      status = memory->Map(index, own.get(), bytes);
      continue;
    }
    const std::string path = absl::StrCat("/proc/", offer.process, "/fd/", offer.file);
    const File file(offer.file < 0 ? -1 : open(path.c_str(), O_RDWR | O_CLOEXEC));
    uint64_t mark = 0;
    if (file.get() < 0 || pread(file.get(), &mark, sizeof(mark), 0) != sizeof(mark) ||
        mark != offer.mark) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("cannot open the shared memory of rank ", ranks[i]));
      continue;
    }
    status = memory->Map(index, file.get(), offer.bytes);
  }
  // All have opened all, or none uses any.
  ASSIGN_OR_RETURN(const auto succeeded, Exchange<char>(communicator, ranks, status.ok()));
  for (size_t i = 0; i < ranks.size() && status.ok(); ++i) {
    if (succeeded[i] == 0) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("rank ", ranks[i], " has no shared memory with the others of its host"));
    }
  }
  RETURN_IF_ERROR(status);
  std::memset(memory->own(), 0, sizeof(Offer::mark));
  // Nobody uses it before it is zero.
  RETURN_IF_ERROR(Exchange<char>(communicator, ranks, 0).status());
  return memory;
}

SharedMemory::~SharedMemory() {
  held_bytes -= counted_;
  for (const View& view : views_) {
    if (view.data != nullptr) munmap(view.data, view.bytes);
  }
}

}  // namespace gyre
