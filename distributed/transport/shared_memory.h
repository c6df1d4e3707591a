// shared_memory.h: memory of each rank of a host that all ranks of the host see.
//
// Made by all of them together, on the threads that drive their communicators; used by any thread.
// It has no name: no other job can find it, and it goes with the processes that have mapped it.
// Who writes there tells the others by atomics in it, or by messages.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/transport/communicator.h"

namespace gyre {

// The ranks of this rank's host, ascending.
std::vector<int> RanksOfHost(const Communicator& communicator);

class SharedMemory {
 public:
  // Makes `bytes`, more than 0, zeroed and aligned to pages, for this rank and maps those of the
  // others, which may be longer or shorter.  Blocks until all ranks of the host have done so, or
  // for the communicator's time limit.
  // Errors: ResourceExhausted, on all ranks of the host, if there is no room for one of them, all
  // of it that they have would be more than half of the host's memory, or one cannot open
  // another's; the communicator's.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(Communicator& communicator,
                                                              size_t bytes);
  ~SharedMemory();  // what the others have mapped stays
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // By index into RanksOfHost.
  std::byte* of(int index) const { return views_[index].data; }
  size_t bytes(int index) const { return views_[index].bytes; }
  std::byte* own() const { return of(own_); }

 private:
  struct View {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  SharedMemory() = default;
  absl::Status Map(int index, int file, size_t bytes);

  std::vector<View> views_;
  int own_ = 0;
  size_t counted_ = 0;  // bytes of this object among all that the process has made
};

}  // namespace gyre
