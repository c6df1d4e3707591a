// collective.h: operations over tensors of equal length on all ranks, in place, as state machines.
//
// The order of additions is a function of (algorithm, element, ranks), hierarchical's also of which
// ranks share a host, never of timing; all ranks end with the same bits.  One operation at a time
// in an object, several objects driven by one thread at a time.  Staging is kept between
// operations.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/channel.h"
#include "distributed/collectives/reduction.h"
#include "distributed/transport/shared_memory.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// Rank r's part of a tensor is EqualPart(elements, ranks, r), unless CutAmong says otherwise.
enum class Operation : uint8_t {
  kAllreduce,      // all have the sum
  kReduceScatter,  // each has its part of the sum; the rest of its tensor is undefined
  kAllgather,      // all have every rank's part
  kBroadcast,      // all have what the root had
  kExchange,       // no tensor: each sends bytes to some (exchange.h)
};

class Collective {
 public:
  // Its messages have a tag of their own.  The communicator must outlive this.
  Collective(Communicator& communicator, int tag);
  virtual ~Collective() = default;

  // The halves of the sum give parts to the first `owners` ranks alone; before the first operation.
  // `direct` and `shared` can.
  void CutAmong(int owners) { owners_ = owners; }

  // Whole sums of F32 travel as `wire`, a half: what each rank has is rounded, added in F32 in rank
  // order, and the sum is rounded once, so that the error does not grow with the ranks.  Before the
  // first operation.  `direct` can (CheckWire); one rank alone rounds nothing.
  void CarryAs(DType wire) { wire_ = wire; }

  // Begins an operation on memory of any length, 0 included, equal on all ranks; of a real dtype if
  // it sums.  root: of a broadcast.  What wrote the memory has finished; it belongs to the
  // operation until that is done or, after an error, the job has ended.  Errors: InvalidArgument
  // for another dtype; Unimplemented for an operation that the algorithm does not have; those of
  // allocation.
  absl::Status Start(const Claim& claim, Operation operation, Tensor inout, int root = 0);
  // Advances; never blocks, and adds at most one segment.  When done, *sum_of_squares of the
  // result (of this rank's part after kReduceScatter; 0 of what is no sum) is set, not finite
  // if an element is not, and work enqueued on any stream from now on finds the result.  Errors:
  // the channel's and the device's; afterwards the object is of no more use.
  absl::StatusOr<Advance> Progress(double* sum_of_squares);
  // After an error or in place of further progress: blocks until no device works on the memory of
  // the operation.  The object is then of no more use.
  virtual void Abandon() {}

 protected:
  // Of what Start has been given.
  virtual absl::Status Begin() = 0;
  // As Progress; when done, squares_ is the sum of squares.
  virtual absl::StatusOr<Advance> Step() = 0;

  std::byte* At(int64_t element) const {
    return static_cast<std::byte*>(tensor_.data) + element * size_;
  }
  ElementRange Part(int rank) const {
    const int64_t elements = tensor_.elements();
    if (rank >= owners_) return {elements, elements};
    return EqualPart(elements, owners_, rank);
  }
  absl::Status Lacks() const;  // Unimplemented: this operation

  // For algorithms that go on when all they have begun is done: begin moving `bytes`, in messages
  // of at most kSegmentBytes.
  absl::Status Send(const void* data, size_t bytes, int to);
  absl::Status Receive(void* data, size_t bytes, int from);
  // True once all that was begun is done.
  absl::StatusOr<bool> Quiet();
  // Where messages are received that are to be added; kept.
  std::byte* Staging(size_t bytes);

  // The largest that Open MPI moves over TCP at full speed; what is added at once.
  static constexpr size_t kSegmentBytes = 256 << 10;

  Channel channel_;
  const int ranks_, rank_;
  int owners_;
  std::optional<DType> wire_;
  Operation operation_ = Operation::kAllreduce;
  int root_ = 0;
  Tensor tensor_;
  int64_t size_ = 1;  // of an element
  double squares_ = 0;

 private:
  bool running_ = false, finished_ = false;
  std::vector<Request> requests_;
  std::unique_ptr<std::byte[]> staging_;
  size_t staging_bytes_ = 0;
};

// Memory of SharedMemory in which gradients lie, equally cut on all ranks of a host.
using SharedArenas = std::vector<std::unique_ptr<SharedMemory>>;

// Where memory of rank `index` of the host lies; arena -1: in none.
struct InArena {
  int64_t arena = -1, offset = 0;
};
InArena Locate(const SharedArenas& arenas, int index, const void* data);

}  // namespace gyre
