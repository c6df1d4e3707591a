// collective.h: in-place operations on tensors of equal length on all ranks, as state machines.
//
// The order of additions depends on algorithm, element and ranks (for hierarchical also on which
// share a host), never on timing.  All ranks get the same bits.  An operation's claim precedes its
// first bytes to each rank, which compares it with its own.  So a mismatch is found without an
// extra round.  An object runs one operation at a time, and one thread drives several objects.
// Staging is kept between operations.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/reduction.h"
#include "distributed/transport/communicator.h"
#include "distributed/transport/shared_memory.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// Rank r's slice of a tensor is EqualPart(elements, ranks, r), unless CutAmong was called.
enum class Operation : uint8_t {
  kAllreduce,      // all ranks get the sum
  kReduceScatter,  // each rank gets its slice of the sum; the rest of its tensor is undefined
  kAllgather,      // all ranks get every rank's slice
  kBroadcast,      // all ranks get the root's values
  kExchange,       // bytes between some ranks, without a tensor (exchange.h)
};

// The identity of an operation.  It is the same on all ranks, or an error on all.
struct Claim {
  int64_t sequence = 0;             // number of the operation in its group
  uint64_t hash = 0;                // of its full label
  std::array<char, 112> what = {};  // label for people, cut to fit

  static Claim Of(int64_t sequence, std::string_view what);
  // The same operation, by the named algorithm.
  Claim By(std::string_view how) const;
};

// OK if the claims of two ranks are equal.  Errors: FailedPrecondition with both labels.
absl::Status Compare(const Claim& mine, int rank, const Claim& theirs, int peer);

// FNV-1a, which gives the same hash in all processes.
uint64_t Hash(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);

// Messages one after the other, of which kMost at most are under way.
struct MessageWindow {
  static constexpr int64_t kMost = 4;
  int64_t posted = 0, done = 0;
  std::array<Request, kMost> requests = {};  // by message % kMost
};

class Collective {
 public:
  // Over `ranks` of the communicator, with this one, which are 0, 1, ... here.  Over all if there
  // are none.  The communicator outlives this object.  Between two ranks a tag must not serve two
  // objects at once.
  Collective(Communicator& communicator, int tag, std::vector<int> ranks = {});
  virtual ~Collective() = default;

  // Gives slices to the first `owners` ranks alone, in reduce-scatter and allgather of `direct` and
  // `shared`.  Precondition: no operation was started.
  void CutAmong(int owners) { owners_ = owners; }

  // Sets the wire type of allreduce of F32 to F16 or BF16.  Values are rounded, added in F32 in
  // rank order, and rounded once more, so the error does not grow with the ranks.  One rank alone
  // rounds nothing.  For `direct` (CheckWire).  Precondition: no operation was started.
  void CarryAs(DType wire) { wire_ = wire; }

  // Begins an operation on memory of any length, equal on all ranks.  `root` is for a broadcast.
  // Precondition: the work that wrote the memory has finished.  Lifetime: the memory, until the
  // operation is done or, after an error, until the job has ended.  Errors: InvalidArgument for a
  // sum of no real type, Unimplemented if the algorithm lacks the operation, those of allocation.
  absl::Status Start(const Claim& claim, Operation operation, Tensor inout, int root = 0);
  // Advances without blocking, and adds at most one segment.  When it is done, work enqueued on any
  // stream finds the result, and *sum_of_squares is set, not finite if an element is not:
  //   allreduce       of the result
  //   reduce-scatter  of this rank's slice
  //   others          0
  // Errors: those of messages, Compare and the device.  The object is then unusable.
  absl::StatusOr<Advance> Progress(double* sum_of_squares);
  // Ends an operation, also after an error.  Blocks until no device uses its memory.  The object is
  // then unusable.
  virtual void Abandon() {}

 protected:
  // Starts the algorithm on the members that Start has set.
  virtual absl::Status Begin() = 0;
  // As Progress.  Sets squares_ to the sum of squares when it is done.
  virtual absl::StatusOr<Advance> Step() = 0;

  std::byte* At(int64_t element) const {
    return static_cast<std::byte*>(tensor_.data) + element * size_;
  }
  ElementRange Part(int rank) const {
    const int64_t elements = tensor_.elements();
    if (rank >= owners_) return {elements, elements};
    return EqualPart(elements, owners_, rank);
  }
  absl::Status Lacks() const;  // Unimplemented, for this operation

  // The number of the rank in the whole job.
  int InJob(int rank) const { return peers_[rank].in_job; }
  // Sends the claim to the next rank and receives that of the rank before, in a ring of all ranks.
  // For algorithms in which two ranks that differ may exchange no message.
  absl::Status Announce();
  // Begins a message, a kSend or a kReceive.  Errors: as the communicator's.
  absl::StatusOr<Request> Post(RequestKind kind, void* data, size_t bytes, int peer);
  // As the communicator's.  Errors: also those of Compare, told to all ranks.
  absl::StatusOr<bool> Test(Request request);
  // Returns true once all claims are sent and received.  Errors: as Test's.
  absl::StatusOr<bool> Settled();
  // Begin a message of `bytes`, in segments of at most kSegmentBytes.
  absl::Status Send(void* data, size_t bytes, int to) {
    return PostInSegments(RequestKind::kSend, data, bytes, to);
  }
  absl::Status Receive(void* data, size_t bytes, int from) {
    return PostInSegments(RequestKind::kReceive, data, bytes, from);
  }
  // Returns true once all messages that Send and Receive began are done.
  absl::StatusOr<bool> Quiet() { return AllDone(requests_); }
  // Returns true once all of `requests` are done, and forgets those that are.
  absl::StatusOr<bool> AllDone(std::vector<Request>& requests);
  // Ends messages of the window that are done, in order.  Returns whether there was one.
  absl::StatusOr<bool> EndDone(MessageWindow& window);
  // Begins messages below `end` as the window allows, by begin(message), which returns its request.
  // Returns whether there was one.
  template <typename BeginMessage>
  absl::StatusOr<bool> BeginNext(MessageWindow& window, int64_t end, const BeginMessage& begin) {
    const int64_t before = window.posted;
    for (; window.posted < std::min(end, window.done + MessageWindow::kMost); ++window.posted) {
      ASSIGN_OR_RETURN(window.requests[window.posted % MessageWindow::kMost], begin(window.posted));
    }
    return window.posted > before;
  }
  // Memory for messages that are to be added.  Kept.
  std::byte* Staging(size_t bytes);

  // The largest message that Open MPI moves over TCP at full speed, and the most added at once.
  static constexpr size_t kSegmentBytes = 256 << 10;

  Communicator& communicator_;
  const int ranks_;
  int rank_ = 0;
  int owners_;
  std::optional<DType> wire_;
  Claim claim_;
  Operation operation_ = Operation::kAllreduce;
  int root_ = 0;
  Tensor tensor_;
  int64_t size_ = 1;  // of an element
  double squares_ = 0;

 private:
  struct Peer {
    int in_job;
    bool claimed = false, heard = false;  // claim sent to it, claim requested from it
    Claim theirs = {};
  };
  struct PendingClaim {
    Request request;
    int from;  // -1: a send
  };

  // Sends the claim to the rank or receives its, once in an operation.
  absl::Status PostClaim(RequestKind kind, int rank);
  absl::Status PostInSegments(RequestKind kind, void* data, size_t bytes, int peer);

  const int tag_;
  std::vector<Peer> peers_;            // by rank
  std::vector<PendingClaim> pending_;  // claims under way
  bool running_ = false, finished_ = false;
  std::vector<Request> requests_;
  std::unique_ptr<std::byte[]> staging_;
  size_t staging_bytes_ = 0;
};

// Memory of SharedMemory for gradients, divided equally on all ranks of a host.
using SharedArenas = std::vector<std::unique_ptr<SharedMemory>>;

// The offset of `data` in the memory of rank `index` of the host.  arena is -1 if it is in none.
struct InArena {
  int64_t arena = -1, offset = 0;
};
InArena Locate(const SharedArenas& arenas, int index, const void* data);

}  // namespace gyre
