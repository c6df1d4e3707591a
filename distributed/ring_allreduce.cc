// ring_allreduce.cc: see ring_allreduce.h.

#include "distributed/ring_allreduce.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/check.h"

namespace gyre {

RingAllreduce::RingAllreduce(Communicator& communicator, std::unique_ptr<RingArithmetic> arithmetic)
    : communicator_(communicator),
      arithmetic_(std::move(arithmetic)),
      ranks_(communicator.size()),
      rank_(communicator.rank()) {}

// The longest chunk may be an element longer than the mean.  A multiple of the widest element,
// which keeps every dtype aligned, and of what a GPU reads at once.
size_t RingAllreduce::SlotBytes(size_t segment_bytes, size_t bytes, int ranks) {
  if (ranks == 1) return 0;
  const size_t longest_chunk = bytes / ranks + sizeof(double);
  return (std::min(segment_bytes, longest_chunk) + 255) / 256 * 256;
}

absl::Status RingAllreduce::Start(Tensor inout) {
  RETURN_IF_ERROR(CheckSummable(inout.dtype));
  GYRE_CHECK(receive_done_ == end_ && send_done_ == end_);
  tensor_ = inout;
  const int64_t longest_chunk = EqualPart(inout.elements(), ranks_, 0).count();
  segment_elements_ = arithmetic_->segment_bytes() / SizeOf(inout.dtype);
  segments_ = std::max<int64_t>(1, (longest_chunk + segment_elements_ - 1) / segment_elements_);
  gather_begin_ = ranks_ > 1 ? (ranks_ - 1) * (segments_ + 1) : segments_;
  end_ = ranks_ > 1 ? 2 * gather_begin_ : segments_;
  send_posted_ = send_done_ = receive_posted_ = received_ = receive_done_ = 0;
  partials_.assign(ranks_, {});
  const size_t needed = SlotBytes(arithmetic_->segment_bytes(), inout.bytes(), ranks_);
  if (slot_bytes_ >= needed) return absl::OkStatus();
  slot_bytes_ = needed;
  return arithmetic_->Reserve(needed);
}

absl::StatusOr<Advance> RingAllreduce::Progress(double* sum_of_squares) {
  ASSIGN_OR_RETURN(const bool moved, ranks_ > 1 ? Communicate() : MeasureAlone());
  ASSIGN_OR_RETURN(const bool finished, FinishWork());
  if (receive_done_ < end_ || send_done_ < end_) {
    return moved || finished ? Advance::kMoved : Advance::kWaiting;
  }
  double total = 0;
  for (const double partial : partials_) total += partial;
  *sum_of_squares = total;
  return Advance::kDone;
}

absl::StatusOr<bool> RingAllreduce::Communicate() {
  bool moved = false;
  // Post first: while a segment is being added, the next ones travel.
  while (MayReceive()) {
    RETURN_IF_ERROR(PostReceive());
    moved = true;
  }
  while (MaySend()) {
    RETURN_IF_ERROR(PostSend());
    moved = true;
  }
  while (send_done_ < send_posted_) {
    ASSIGN_OR_RETURN(const bool done, communicator_.Test(sends_[send_done_ % kWindow]));
    if (!done) break;
    send_done_ = Next(send_done_);
    moved = true;
  }
  if (received_ == receive_posted_) return moved;
  // One a pass, so that the thread stays ready to abort.
  const int slot = static_cast<int>(received_ % kWindow);
  ASSIGN_OR_RETURN(const bool arrived, communicator_.Test(receives_[slot]));
  if (!arrived) return moved;
  if (InScatter(received_)) {
    using Work = RingArithmetic::Work;
    const Message message = MessageAt(received_, /*is_send=*/false);
    const bool last_addition = message.chunk == rank_;
    RETURN_IF_ERROR(arithmetic_->Start(slot, last_addition ? Work::kAddAndMeasure : Work::kAdd,
                                       tensor_.dtype, Address(message), message.elements.count()));
  }
  received_ = Next(received_);
  return true;
}

// One segment a pass; send_done_ keeps pace, because there is nobody to send to.
absl::StatusOr<bool> RingAllreduce::MeasureAlone() {
  if (received_ == end_ || received_ == receive_done_ + kWindow) return false;
  const ElementRange range = FixedPart({0, tensor_.elements()}, segment_elements_, received_);
  RETURN_IF_ERROR(arithmetic_->Start(static_cast<int>(received_ % kWindow),
                                     RingArithmetic::Work::kMeasure, tensor_.dtype,
                                     Address({0, range, /*is_partial=*/false}), range.count()));
  send_done_ = ++received_;
  return true;
}

// In the order of positions, so that what is measured is added up in that order.
absl::StatusOr<bool> RingAllreduce::FinishWork() {
  bool finished = false;
  while (receive_done_ < received_) {
    if (InScatter(receive_done_)) {
      const int slot = static_cast<int>(receive_done_ % kWindow);
      ASSIGN_OR_RETURN(const bool done, arithmetic_->Finish(slot, &partials_[rank_]));
      if (!done) break;
    }
    receive_done_ = Next(receive_done_);
    finished = true;
  }
  return finished;
}

int64_t RingAllreduce::Next(int64_t position) const {
  ++position;
  const bool skipped = InScatter(position) && position % (segments_ + 1) == segments_;
  return skipped ? position + 1 : position;
}

RingAllreduce::Message RingAllreduce::MessageAt(int64_t position, bool is_send) const {
  const int64_t step = position / (segments_ + 1), segment = position % (segments_ + 1);
  const int64_t chunk = (rank_ - (is_send ? 1 : 2) - step + 3 * int64_t{ranks_}) % ranks_;
  return {static_cast<int>(chunk),
          FixedPart(EqualPart(tensor_.elements(), ranks_, chunk), segment_elements_, segment),
          segment == segments_};
}

void* RingAllreduce::Address(const Message& message) {
  if (message.is_partial) return &partials_[message.chunk];
  return static_cast<std::byte*>(tensor_.data) + message.elements.begin * SizeOf(tensor_.dtype);
}

size_t RingAllreduce::Bytes(const Message& message) const {
  if (message.is_partial) return sizeof(double);
  return message.elements.count() * SizeOf(tensor_.dtype);
}

bool RingAllreduce::MaySend() const {
  const bool arrived = receive_done_ > send_posted_ - (segments_ + 1);
  return send_posted_ < end_ && arrived && send_posted_ < send_done_ + kWindow;
}

// In allgather a segment is received where it was sent from one round of the ring before.  It
// cannot come before that send has reached the next rank, but the memory is MPI's until it says so.
bool RingAllreduce::MayReceive() const {
  const bool vacated = InScatter(receive_posted_) || send_done_ > receive_posted_ - gather_begin_;
  return receive_posted_ < end_ && vacated && receive_posted_ < receive_done_ + kWindow;
}

absl::Status RingAllreduce::PostSend() {
  const Message message = MessageAt(send_posted_, /*is_send=*/true);
  ASSIGN_OR_RETURN(
      sends_[send_posted_ % kWindow],
      communicator_.Send(Address(message), Bytes(message), (rank_ + 1) % ranks_, kRingTag));
  send_posted_ = Next(send_posted_);
  return absl::OkStatus();
}

absl::Status RingAllreduce::PostReceive() {
  const Message message = MessageAt(receive_posted_, /*is_send=*/false);
  const int slot = static_cast<int>(receive_posted_ % kWindow);
  void* const to = InScatter(receive_posted_) ? arithmetic_->slot(slot) : Address(message);
  ASSIGN_OR_RETURN(receives_[slot], communicator_.Receive(to, Bytes(message),
                                                          (rank_ + ranks_ - 1) % ranks_, kRingTag));
  receive_posted_ = Next(receive_posted_);
  return absl::OkStatus();
}

}  // namespace gyre
