// page_file.h: an unnamed file of pages, gone with the process.  Transfers bypass the system's
// cache if the file system can.  Memory holds a checksum of each sector.
//
// Homes come first and are also mapped.  Their owner may read the mapping, and write it after
// Release.  Threads may transfer different sectors at once, each with its own PageQueue.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

class PageFile {
 public:
  // Divides offset, size and memory address of a transfer.  A drive's sector divides it.
  static constexpr size_t kSectorBytes = 4096;

  // Makes a file in `folder` and reserves its space, so that no later write finds the disk full.
  // Errors, which name the folder: ResourceExhausted if space lacks, otherwise the errno's status.
  static absl::StatusOr<std::unique_ptr<PageFile>> Create(const std::string& folder, size_t bytes,
                                                          size_t home_bytes);
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;
  ~PageFile();

  size_t bytes() const { return sectors_.size() * kSectorBytes; }
  size_t home_bytes() const { return home_bytes_; }
  // The mapping, of home_bytes() zeros at first.  Null if there are none.
  std::byte* homes() const { return homes_; }
  // Lets the owner of homes change them through the mapping, as at first.  The next read of a home
  // accepts any bytes, and later reads must find the same.
  // Precondition: no transfer of homes is under way.
  void Release();

 private:
  friend class PageQueue;
  PageFile(std::string folder, int fd, size_t home_bytes)
      : folder_(std::move(folder)), fd_(fd), home_bytes_(home_bytes) {}

  void Sum(size_t offset, const std::byte* memory, size_t bytes);
  absl::Status Verify(size_t offset, const std::byte* memory, size_t bytes);
  absl::Status Error(int code, const char* what, size_t offset) const;

  const std::string folder_;
  const int fd_;
  std::vector<std::optional<uint32_t>> sectors_;  // CRC-32s; a home's may be unknown
  const size_t home_bytes_;
  std::byte* homes_ = nullptr;
};

// Transfers of pages, by io_uring if the kernel has and allows it.  Otherwise each transfer is over
// when Read or Write returns.  One thread may begin transfers while another awaits others.  The
// file outlives the queue.
class PageQueue {
 public:
  // Takes up to `slots` transfers at once.  With `plain`, does not use io_uring.
  PageQueue(PageFile& file, int slots, bool plain = false);
  PageQueue(const PageQueue&) = delete;
  PageQueue& operator=(const PageQueue&) = delete;
  ~PageQueue();  // waits for all transfers

  // Begin a transfer in a free slot.  The caller leaves the memory alone until Await.
  void Read(int slot, size_t offset, std::byte* to, size_t bytes) {
    Begin({.offset = offset, .memory = to, .bytes = bytes, .reads = true}, slot);
  }
  void Write(int slot, size_t offset, std::byte* from, size_t bytes) {
    Begin({.offset = offset, .memory = from, .bytes = bytes, .reads = false}, slot);
  }
  // Blocks until the slot's transfer is over, and checks the bytes read.
  // Errors: DataLoss for other or fewer bytes than were written, and those of the system.  All name
  // the folder and the offset.
  absl::Status Await(int slot);

  bool plain() const { return ring_ == nullptr; }

 private:
  struct PageTransfer {
    size_t offset = 0;
    std::byte* memory = nullptr;
    size_t bytes = 0;
    bool reads = false;
    size_t done = 0;  // bytes
    bool over = true;
    bool retried = false;  // through the system's cache
    int error = 0;         // errno, or -1 for a file that is too short
  };
  struct CloseRing {
    void operator()(io_uring* ring) const;
  };

  void Begin(const PageTransfer& transfer, int slot);
  void GoOn(int slot);
  bool Advanced(PageTransfer& transfer, int64_t result);

  PageFile& file_;
  std::vector<PageTransfer> transfers_;  // by slot
  std::mutex submitting_;                // whoever awaits submits, too, if something is left
  std::unique_ptr<io_uring, CloseRing> ring_;
};

// Measures a disk's speeds as the pager uses it, with all staging slots in flight and checksums.
// Uses a file of about `bytes` (1 or more) in `folder`, gone afterwards.  Blocks for at most half a
// second and the transfers then under way.  `slots` is memory of half the staging.
// Errors, without a change of costs: those of PageFile::Create and PageQueue.
absl::Status MeasureDisk(const std::string& folder, const Staging& staging, std::byte* slots,
                         size_t bytes, PagingCosts& costs);

}  // namespace gyre
