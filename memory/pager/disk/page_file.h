// page_file.h: a file without a name that holds pages for as long as the process lives, past the
// system's cache where the file system allows it, each sector with a checksum in memory.
//
// It begins with homes, which are mapped as well: who has them may read there, and write once it
// has said so (Release). Transfers of different sectors may run on several threads, each with a
// queue of its own.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

class PageFile {
 public:
  // Places, bytes and memory of transfers are multiples of it.  So are a drive's own sectors.
  static constexpr size_t kSectorBytes = 4096;

  // In `folder`, all of its space reserved: nothing that is written later finds the disk full.
  // Errors: ResourceExhausted if there is not enough; else what absl::ErrnoToStatusCode knows; both
  // name the folder.
  static absl::StatusOr<std::unique_ptr<PageFile>> Create(const std::string& folder, size_t bytes,
                                                          size_t home_bytes);
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;
  ~PageFile();

  size_t bytes() const { return sectors_.size() * kSectorBytes; }
  size_t home_bytes() const { return home_bytes_; }
  // Of home_bytes(); null if there are none.  All zeros at first.
  std::byte* homes() const { return homes_; }
  // From now on, as at first, homes may be changed through the mapping: what is read next is taken
  // as it is, and is what later reads must find.  No transfer of homes is under way then.
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
  std::vector<std::optional<uint32_t>> sectors_;  // CRC-32s; of homes also unknown
  const size_t home_bytes_;
  std::byte* homes_ = nullptr;
};

// Transfers under way, by io_uring where the kernel has it and lets us; else each is over when it
// has begun.  Used by one thread.  The file outlives it.
class PageQueue {
 public:
  // Of up to `slots` transfers at once.  plain: without io_uring.
  PageQueue(PageFile& file, int slots, bool plain = false);
  PageQueue(const PageQueue&) = delete;
  PageQueue& operator=(const PageQueue&) = delete;
  ~PageQueue();  // all is over then

  // Begins one, in a slot without one.  The memory stays as it is until it is over.
  void Read(int slot, size_t offset, std::byte* to, size_t bytes) {
    Begin({.offset = offset, .memory = to, .bytes = bytes, .reads = true}, slot);
  }
  void Write(int slot, size_t offset, std::byte* from, size_t bytes) {
    Begin({.offset = offset, .memory = from, .bytes = bytes, .reads = false}, slot);
  }
  // Waits until the slot's is over; checks what was read.  Errors: DataLoss for other bytes than
  // were written, or for fewer; those of the system; all name the file's folder and the place.
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
    bool retried = false;  // not as a direct transfer
    int error = 0;         // errno, or that the file is shorter
  };
  struct CloseRing {
    void operator()(io_uring* ring) const;
  };

  void Begin(const PageTransfer& transfer, int slot);
  void GoOn(int slot);
  bool Advanced(PageTransfer& transfer, int64_t result);

  PageFile& file_;
  std::vector<PageTransfer> transfers_;  // by slot
  std::unique_ptr<io_uring, CloseRing> ring_;
};

}  // namespace gyre
