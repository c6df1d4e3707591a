// ring_allreduce.cc: see ring_allreduce.h.

#include "distributed/ring_allreduce.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Large enough that a message's latency (1 us within a host, 10 us over TCP) is little beside its
// transfer (13 us at 10 GB/s, 1 ms at 1 Gbit/s); small enough that a window of four stays in a
// core's L2 cache (1 to 2 MB) between arrival and addition, and that a chunk of the usual bucket
// has several in flight.  Above 256 KB, Open MPI's TCP halves its speed.
constexpr size_t kSegmentBytes = 128 << 10;

}  // namespace

RingAllreduce::RingAllreduce(Communicator& communicator)
    : communicator_(communicator), ranks_(communicator.size()), rank_(communicator.rank()) {}

absl::Status RingAllreduce::Start(Tensor inout) {
  RETURN_IF_ERROR(CheckSummable(inout));
  GYRE_CHECK(receive_done_ == end_ && send_done_ == end_);
  tensor_ = inout;
  const int64_t longest_chunk = EqualPart(inout.elements(), ranks_, 0).count();
  segment_elements_ = kSegmentBytes / SizeOf(inout.dtype);
  segments_ = std::max<int64_t>(1, (longest_chunk + segment_elements_ - 1) / segment_elements_);
  gather_begin_ = (ranks_ - 1) * (segments_ + 1);
  end_ = ranks_ > 1 ? 2 * gather_begin_ : segments_;
  send_posted_ = send_done_ = receive_posted_ = receive_done_ = 0;
  partials_.assign(ranks_, {});
  // Slots are a multiple of the widest element, whatever dtype the buffer served first.
  const size_t slot = std::min<size_t>(kSegmentBytes, longest_chunk * SizeOf(inout.dtype));
  const size_t needed = ranks_ > 1 ? kWindow * ((slot + 63) / 64 * 64) : 0;
  if (staging_bytes_ < needed) {
    staging_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    staging_bytes_ = needed;
  }
  return absl::OkStatus();
}

absl::StatusOr<Advance> RingAllreduce::Progress(ReduceResult* result) {
  if (ranks_ == 1) return MeasureAlone(result);
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
  if (receive_done_ < receive_posted_) {
    ASSIGN_OR_RETURN(const bool done, communicator_.Test(receives_[receive_done_ % kWindow]));
    if (done) {
      Accept(receive_done_);
      receive_done_ = Next(receive_done_);
      moved = true;
    }
  }
  if (receive_done_ < end_ || send_done_ < end_) return moved ? Advance::kMoved : Advance::kWaiting;
  PartialResult total;
  for (const PartialResult& partial : partials_) total.Add(partial);
  *result = total.Result();
  return Advance::kDone;
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
  if (message.is_partial) return sizeof(PartialResult);
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
  const int64_t slot = receive_posted_ % kWindow;
  void* const to = InScatter(receive_posted_) ? staging_.get() + slot * (staging_bytes_ / kWindow)
                                              : Address(message);
  ASSIGN_OR_RETURN(receives_[slot], communicator_.Receive(to, Bytes(message),
                                                          (rank_ + ranks_ - 1) % ranks_, kRingTag));
  receive_posted_ = Next(receive_posted_);
  return absl::OkStatus();
}

void RingAllreduce::Accept(int64_t position) {
  if (!InScatter(position)) return;
  const Message message = MessageAt(position, /*is_send=*/false);
  const void* const addend = staging_.get() + position % kWindow * (staging_bytes_ / kWindow);
  void* const sum = Address(message);
  if (message.chunk == rank_) {  // the last addition to it
    partials_[rank_].Add(AddToAndMeasure(tensor_.dtype, sum, addend, message.elements.count()));
  } else {
    AddTo(tensor_.dtype, sum, addend, message.elements.count());
  }
}

// One segment a pass, so that the thread stays ready to abort.
absl::StatusOr<Advance> RingAllreduce::MeasureAlone(ReduceResult* result) {
  const ElementRange range = FixedPart({0, tensor_.elements()}, segment_elements_, receive_done_++);
  send_done_ = receive_done_;
  partials_[0].Add(Measure(tensor_.dtype, Address({0, range, false}), range.count()));
  if (receive_done_ < end_) return Advance::kMoved;
  *result = partials_[0].Result();
  return Advance::kDone;
}

}  // namespace gyre
