// shared_memory.h: memory of each rank of a host that all ranks of the host map.
//
// The driving threads of all these ranks create it together, and any thread uses it.  It has no
// name, so no other job can find it, and it ends with the processes that map it.  Writers notify
// readers by atomics in it, or by messages.
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
  // Creates `bytes` > 0 for this rank, zeroed and aligned to pages, and maps those of the others,
  // whose sizes may differ.  Blocks until all ranks of the host have done so, at most for the
  // communicator's time limit.
  // Errors: those of the communicator.  ResourceExhausted on all ranks of the host if one has no
  // room or cannot open another's, or if all together exceed half of the host's memory.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(Communicator& communicator,
                                                              size_t bytes);
  ~SharedMemory();  // the mappings of other ranks stay
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Memory of RanksOfHost()[index].
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
  size_t counted_ = 0;  // bytes of this object in the total of the process
};

}  // namespace gyre
