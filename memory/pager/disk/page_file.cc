#include "memory/pager/disk/page_file.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEnd = -1;
// Of each of four passes that measure a disk.
constexpr std::chrono::milliseconds kMostTime(125);

// A file that nobody else finds, and nothing is left of once it is closed.  -1 and errno if not.
int OpenWithoutName(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // A file system that cannot, or a kernel that takes the flag for O_DIRECTORY.
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = absl::StrCat(folder, "/.pages-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

// Past the system's cache, which would be host memory again.  Where that fails, through it.
bool SetDirect(int fd, bool direct) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Transfers from the file's beginning up to `end`, which becomes how far time has sufficed.
absl::StatusOr<double> Speed(PageFile& file, const Staging& staging, std::byte* slots, bool reads,
                             size_t& end) {
  PageQueue queue(file, staging.slots);
  const Clock::time_point start = Clock::now();
  size_t at = 0;
  for (int slot = 0; at < end && Clock::now() - start < kMostTime;
       at += staging.slot_bytes, slot = (slot + 1) % staging.slots) {
    RETURN_IF_ERROR(queue.Await(slot));
    std::byte* const memory = slots + static_cast<size_t>(slot) * staging.slot_bytes;
    if (reads) {
      queue.Read(slot, at, memory, staging.slot_bytes);
    } else {
      queue.Write(slot, at, memory, staging.slot_bytes);
    }
  }
  for (int slot = 0; slot < staging.slots; ++slot) RETURN_IF_ERROR(queue.Await(slot));
  end = at;
  return static_cast<double>(at) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageFile>> PageFile::Create(const std::string& folder, size_t bytes,
                                                           size_t home_bytes) {
  GYRE_CHECK(bytes % kSectorBytes == 0 && home_bytes % kSectorBytes == 0 && home_bytes <= bytes);
  const auto failed = [&](int code, absl::string_view what) {
    return absl::ErrnoToStatus(code, absl::StrCat("pages on disk: cannot ", what, " ", folder));
  };
  const auto full = [&](absl::string_view free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("pages on disk: ", folder, " has no room for ", bytes, " bytes", free,
                     "; name a folder on another disk, or allow more host memory"));
  };
  const int fd = OpenWithoutName(folder);
  if (fd < 0) return failed(errno, "make a file in");
  std::unique_ptr<PageFile> file(new PageFile(folder, fd, home_bytes));
  if (bytes == 0) return file;
  struct statvfs system;
  if (fstatvfs(fd, &system) == 0 && system.f_bavail < bytes / system.f_frsize) {
    return full(absl::StrCat(", ", system.f_bavail * system.f_frsize, " are free"));
  }
  if (const int code = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); code != 0) {
    return code == ENOSPC ? full("") : failed(code, absl::StrCat("reserve ", bytes, " bytes in"));
  }
  if (home_bytes > 0) {
    void* const homes = mmap(nullptr, home_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (homes == MAP_FAILED) return failed(errno, "map a file in");
    file->homes_ = static_cast<std::byte*>(homes);
  }
  file->sectors_.resize(bytes / kSectorBytes);
  SetDirect(fd, true);
  return file;
}

PageFile::~PageFile() {
  if (homes_ != nullptr) munmap(homes_, home_bytes_);
  close(fd_);
}

void PageFile::Release() {
  std::fill_n(sectors_.begin(), home_bytes_ / kSectorBytes, std::nullopt);
}

void PageFile::Sum(size_t offset, const std::byte* memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kSectorBytes) {
    sectors_[(offset + at) / kSectorBytes] = libdeflate_crc32(0, memory + at, kSectorBytes);
  }
}

absl::Status PageFile::Verify(size_t offset, const std::byte* memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kSectorBytes) {
    std::optional<uint32_t>& expected = sectors_[(offset + at) / kSectorBytes];
    const uint32_t found = libdeflate_crc32(0, memory + at, kSectorBytes);
    if (!expected && offset + at >= home_bytes_) {
      return absl::InternalError("pages on disk: a page is read that was not written");
    }
    if (!expected) expected = found;
    if (*expected == found) continue;
    return absl::DataLossError(absl::StrCat(
        "pages on disk: the file in ", folder_, " has other bytes from ", offset + at,
        " on than were written there (CRC-32 of ", kSectorBytes, " bytes: expected ",
        absl::Hex(*expected, absl::kZeroPad8), ", got ", absl::Hex(found, absl::kZeroPad8),
        "); check the disk, and resume from the last checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status PageFile::Error(int code, const char* what, size_t offset) const {
  const std::string where =
      absl::StrCat("pages on disk: cannot ", what, " byte ", offset, " of the file in ", folder_);
  if (code != kEnd) {
    return absl::ErrnoToStatus(code, absl::StrCat(where, "; resume from the last checkpoint"));
  }
  return absl::DataLossError(absl::StrCat(where, ": it has been cut, expected ", bytes(),
                                          " bytes; resume from the last checkpoint"));
}

// liburing maps its rings by system calls that ThreadSanitizer does not see: it takes one for
// another that lay there before, of another thread.
#if defined(__SANITIZE_THREAD__)
constexpr bool kOnlyPlain = true;
#else
constexpr bool kOnlyPlain = false;
#endif

void PageQueue::CloseRing::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

PageQueue::PageQueue(PageFile& file, int slots, bool plain) : file_(file), transfers_(slots) {
  auto ring = std::make_unique<io_uring>();
  // A container may refuse it, and an old kernel not know it.
  if (plain || kOnlyPlain || io_uring_queue_init(static_cast<unsigned>(slots), ring.get(), 0) != 0)
    return;
  ring_.reset(ring.release());
}

PageQueue::~PageQueue() {
  for (int slot = 0; slot < static_cast<int>(transfers_.size()); ++slot) (void)Await(slot);
}

void PageQueue::Begin(const PageTransfer& transfer, int slot) {
  GYRE_CHECK(transfers_[slot].over && transfer.bytes > 0 &&
             transfer.offset + transfer.bytes <= file_.bytes());
  GYRE_CHECK((transfer.offset | transfer.bytes | reinterpret_cast<uintptr_t>(transfer.memory)) %
                 PageFile::kSectorBytes ==
             0);
  transfers_[slot] = transfer;
  transfers_[slot].over = false;
  if (!transfer.reads) file_.Sum(transfer.offset, transfer.memory, transfer.bytes);
  GoOn(slot);
}

// With what is left of the slot's transfer.
void PageQueue::GoOn(int slot) {
  PageTransfer& transfer = transfers_[slot];
  for (;;) {
    std::byte* const memory = transfer.memory + transfer.done;
    const size_t bytes = transfer.bytes - transfer.done;
    const auto offset = static_cast<off_t>(transfer.offset + transfer.done);
    if (ring_ != nullptr) {
      const std::lock_guard lock(submitting_);
      io_uring_sqe* const entry = io_uring_get_sqe(ring_.get());
      GYRE_CHECK(entry != nullptr);  // there is one a slot
      const auto count = static_cast<unsigned>(bytes);
      if (transfer.reads) {
        io_uring_prep_read(entry, file_.fd_, memory, count, static_cast<uint64_t>(offset));
      } else {
        io_uring_prep_write(entry, file_.fd_, memory, count, static_cast<uint64_t>(offset));
      }
      io_uring_sqe_set_data64(entry, static_cast<uint64_t>(slot));
      int submitted = 0;
      do {
        submitted = io_uring_submit(ring_.get());
      } while (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY);
      if (submitted < 0) {
        transfer.error = -submitted;
        transfer.over = true;
      }
      return;
    }
    const ssize_t count = transfer.reads ? pread(file_.fd_, memory, bytes, offset)
                                         : pwrite(file_.fd_, memory, bytes, offset);
    if (!Advanced(transfer, count < 0 ? -errno : count)) return;
  }
}

// By what the system returned.  Whether something is left to do.
bool PageQueue::Advanced(PageTransfer& transfer, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return true;
  // A file system may take the flag, and not the transfer.
  if (result == -EINVAL && !std::exchange(transfer.retried, true)) {
    SetDirect(file_.fd_, false);
    return true;
  }
  if (result <= 0) {
    transfer.error = result == 0 ? kEnd : static_cast<int>(-result);
  } else {
    transfer.done += static_cast<size_t>(result);
  }
  transfer.over = transfer.error != 0 || transfer.done == transfer.bytes;
  return !transfer.over;
}

absl::Status PageQueue::Await(int slot) {
  PageTransfer& transfer = transfers_[slot];
  while (!transfer.over) {
    io_uring_cqe* entry = nullptr;
    if (const int code = io_uring_wait_cqe(ring_.get(), &entry); code != 0) {
      GYRE_CHECK(code == -EINTR || code == -EAGAIN);
      continue;
    }
    const int of = static_cast<int>(io_uring_cqe_get_data64(entry));
    const int result = entry->res;
    io_uring_cqe_seen(ring_.get(), entry);
    if (Advanced(transfers_[of], result)) GoOn(of);
  }
  const char* const what = transfer.reads ? "read" : "write";
  const PageTransfer over = std::exchange(transfer, {});
  if (over.error != 0) return file_.Error(over.error, what, over.offset + over.done);
  return over.reads ? file_.Verify(over.offset, over.memory, over.bytes) : absl::OkStatus();
}

absl::Status MeasureDisk(const std::string& folder, const Staging& staging, std::byte* slots,
                         size_t bytes, PagingCosts& costs) {
  size_t end = RoundUp(bytes, staging.slot_bytes);
  ASSIGN_OR_RETURN(const auto file, PageFile::Create(folder, end, /*home_bytes=*/0));
  // A place's first write, which finds it reserved alone, is not like those that an iteration
  // makes.
  RETURN_IF_ERROR(Speed(*file, staging, slots, /*reads=*/false, end).status());
  ASSIGN_OR_RETURN(const double write, Speed(*file, staging, slots, /*reads=*/false, end));
  RETURN_IF_ERROR(Speed(*file, staging, slots, /*reads=*/true, end).status());
  ASSIGN_OR_RETURN(costs.disk_read_bytes_per_s, Speed(*file, staging, slots, /*reads=*/true, end));
  costs.disk_write_bytes_per_s = write;
  return absl::OkStatus();
}

}  // namespace gyre
