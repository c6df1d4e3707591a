// ring_allreduce.h: the bandwidth-optimal sum: scatter-reduce round a ring, then allgather.
//
// A state machine on the communication thread.  Its steps are pipelined in segments: a segment is
// passed on as soon as it has been added, while the next ones are on the wire.  Where the memory
// is, and what adds there, is RingArithmetic's affair.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/allreduce.h"
#include "distributed/communicator.h"
#include "distributed/reduction.h"
#include "distributed/ring_arithmetic.h"

namespace gyre {

// With n ranks the tensor is cut into n chunks, a chunk into m segments.  In step s of 2(n-1), rank
// r sends chunk r-1-s (mod n) to rank r+1 and receives chunk r-2-s from rank r-1:
//
//   scatter-reduce  s <  n-1: what arrives is added.  After it rank r has all of chunk r summed.
//   allgather       s >= n-1: what arrives is final.  After a chunk's segments comes its
//                             sum of squares, so each rank can add up the same n numbers.
//
// What is sent in step s+1 is what arrived in step s, so both directions are one sequence of
// messages, and the rule of the pipeline is: a message may go when its predecessor one step back
// has arrived and been added.  A message's position in that sequence is s * (m+1) + segment, the
// segment m being the sum of squares (positions of scatter-reduce that would have it are skipped).
//
// Cost: 2(n-1) steps of latency; 2(n-1)/n S + 8(n-1) bytes sent and received by a rank.
// Chunk c is summed as ((x[c+1] + x[c+2]) + ...) + x[c], ranks counted mod n.
// Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"; segments as in Gloo's allreduce.
class RingAllreduce final : public Allreduce {
 public:
  // The communicator moves the memory that the arithmetic works in.
  RingAllreduce(Communicator& communicator, std::unique_ptr<RingArithmetic> arithmetic);

  // Of the room that messages need where tensors of up to `bytes` are summed.
  static size_t SlotBytes(size_t segment_bytes, size_t bytes, int ranks);

  absl::Status Start(Tensor inout) override;
  absl::StatusOr<Advance> Progress(double* sum_of_squares) override;
  void Abandon() override { arithmetic_->Drain(); }

 private:
  // Messages under way in each direction: one is moved, one is added, and the others keep the link
  // busy across a late wake-up.
  static constexpr int kWindow = RingArithmetic::kSlots;

  // Where a message's bytes are.
  struct Message {
    int chunk;
    ElementRange elements;  // of the tensor; unused by a sum of squares
    bool is_partial;
  };

  bool InScatter(int64_t position) const { return position < gather_begin_; }
  int64_t Next(int64_t position) const;
  // Of the message that this rank sends at `position`, or that it receives (one chunk further).
  Message MessageAt(int64_t position, bool is_send) const;
  void* Address(const Message& message);
  size_t Bytes(const Message& message) const;
  bool MaySend() const;
  bool MayReceive() const;
  absl::Status PostSend();
  absl::Status PostReceive();
  // Each returns whether it did anything.
  absl::StatusOr<bool> Communicate();
  absl::StatusOr<bool> MeasureAlone();
  absl::StatusOr<bool> FinishWork();

  Communicator& communicator_;
  const std::unique_ptr<RingArithmetic> arithmetic_;
  const int ranks_, rank_;

  Tensor tensor_;
  int64_t segment_elements_ = 0;        // of a full segment
  int64_t segments_ = 0;                // m, of a chunk
  int64_t gather_begin_ = 0, end_ = 0;  // positions
  // Positions: the next to post, and the oldest under way; of what was received (received_ is the
  // oldest that has not arrived), done means added.
  int64_t send_posted_ = 0, send_done_ = 0;
  int64_t receive_posted_ = 0, received_ = 0, receive_done_ = 0;
  std::array<Request, kWindow> sends_{}, receives_{};  // by position % kWindow
  std::vector<double> partials_;                       // by chunk
  std::optional<size_t> slot_bytes_;                   // reserved
};

}  // namespace gyre
