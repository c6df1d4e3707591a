// naive_allreduce.cc: see naive_allreduce.h.

#include "distributed/naive_allreduce.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The largest that Open MPI moves over TCP at full speed: nothing is pipelined here.
constexpr size_t kSegmentBytes = 256 << 10;

}  // namespace

NaiveAllreduce::NaiveAllreduce(Communicator& communicator)
    : communicator_(communicator), ranks_(communicator.size()) {}

absl::Status NaiveAllreduce::Start(Tensor inout) {
  RETURN_IF_ERROR(CheckSummable(inout.dtype));
  GYRE_CHECK(!running_);
  running_ = true;
  tensor_ = inout;
  segment_elements_ = kSegmentBytes / SizeOf(inout.dtype);
  segments_ = (inout.elements() + segment_elements_ - 1) / segment_elements_;
  segment_ = 0;
  stage_ = Stage::kBegin;
  partial_ = 0;
  const size_t needed = is_root() ? (ranks_ - 1) * std::min(kSegmentBytes, inout.bytes()) : 0;
  if (staging_bytes_ < needed) {
    staging_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    staging_bytes_ = needed;
  }
  return absl::OkStatus();
}

absl::StatusOr<Advance> NaiveAllreduce::Progress(double* sum_of_squares) {
  GYRE_CHECK(running_);
  switch (stage_) {
    case Stage::kBegin:
      return Begin();
    case Stage::kToRoot:
      return Collect();
    case Stage::kFromRoot:
      return Return(sum_of_squares);
  }
  return Advance::kDone;
}

void* NaiveAllreduce::Address() {
  if (IsPartial()) return &partial_;
  return static_cast<std::byte*>(tensor_.data) + elements_.begin * SizeOf(tensor_.dtype);
}

size_t NaiveAllreduce::Bytes() const {
  return IsPartial() ? sizeof(partial_) : elements_.count() * SizeOf(tensor_.dtype);
}

absl::StatusOr<Advance> NaiveAllreduce::Begin() {
  requests_.clear();
  requests_done_ = 0;
  if (IsPartial()) {
    RETURN_IF_ERROR(StartReturn());
    return Advance::kMoved;
  }
  elements_ = FixedPart({0, tensor_.elements()}, segment_elements_, segment_);
  stage_ = Stage::kToRoot;
  if (!is_root()) {
    ASSIGN_OR_RETURN(const Request send, communicator_.Send(Address(), Bytes(), 0, kNaiveTag));
    requests_.push_back(send);
    return Advance::kMoved;
  }
  for (int from = 1; from < ranks_; ++from) {
    ASSIGN_OR_RETURN(
        const Request receive,
        communicator_.Receive(staging_.get() + (from - 1) * Bytes(), Bytes(), from, kNaiveTag));
    requests_.push_back(receive);
  }
  return Advance::kMoved;
}

absl::StatusOr<Advance> NaiveAllreduce::Collect() {
  if (requests_done_ < requests_.size()) {
    ASSIGN_OR_RETURN(const bool done, communicator_.Test(requests_[requests_done_]));
    if (!done) return Advance::kWaiting;
    if (is_root()) {
      AddTo(tensor_.dtype, Address(), staging_.get() + requests_done_ * Bytes(), elements_.count());
    }
    ++requests_done_;
    return Advance::kMoved;
  }
  if (is_root()) partial_ += Measure(tensor_.dtype, Address(), elements_.count());
  RETURN_IF_ERROR(StartReturn());
  return Advance::kMoved;
}

absl::Status NaiveAllreduce::StartReturn() {
  requests_.clear();
  requests_done_ = 0;
  stage_ = Stage::kFromRoot;
  if (!is_root()) {
    ASSIGN_OR_RETURN(const Request receive,
                     communicator_.Receive(Address(), Bytes(), 0, kNaiveTag));
    requests_.push_back(receive);
    return absl::OkStatus();
  }
  for (int to = 1; to < ranks_; ++to) {
    ASSIGN_OR_RETURN(const Request send, communicator_.Send(Address(), Bytes(), to, kNaiveTag));
    requests_.push_back(send);
  }
  return absl::OkStatus();
}

absl::StatusOr<Advance> NaiveAllreduce::Return(double* sum_of_squares) {
  if (requests_done_ < requests_.size()) {
    ASSIGN_OR_RETURN(const bool done, communicator_.Test(requests_[requests_done_]));
    if (!done) return Advance::kWaiting;
    ++requests_done_;
    return Advance::kMoved;
  }
  if (!IsPartial()) {
    ++segment_;
    stage_ = Stage::kBegin;
    return Advance::kMoved;
  }
  running_ = false;
  *sum_of_squares = partial_;
  return Advance::kDone;
}

}  // namespace gyre
