#include "distributed/parameter_server/transfer.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {

absl::Status Transfer::Begin(Communicator& communicator, RequestKind kind, std::byte* data,
                             size_t bytes, int peer, int tag) {
  GYRE_CHECK(!under_way_);
  kind_ = kind;
  data_ = data;
  bytes_ = bytes;
  peer_ = peer;
  tag_ = tag;
  posted_ = done_ = 0;
  under_way_ = true;
  return Post(communicator);
}

absl::Status Transfer::Post(Communicator& communicator) {
  for (; posted_ < std::min(segments(), done_ + kWindow); ++posted_) {
    std::byte* const at = data_ + posted_ * kSegmentBytes;
    const size_t bytes = std::min(kSegmentBytes, bytes_ - posted_ * kSegmentBytes);
    ASSIGN_OR_RETURN(requests_[posted_ % kWindow],
                     communicator.Begin(kind_, at, bytes, peer_, tag_));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Transfer::Progress(Communicator& communicator) {
  while (done_ < posted_) {
    ASSIGN_OR_RETURN(const bool done, communicator.Test(requests_[done_ % kWindow]));
    if (!done) return false;
    ++done_;
    RETURN_IF_ERROR(Post(communicator));
  }
  under_way_ = false;
  return true;
}

absl::Status Transfer::Withdraw(Communicator& communicator) {
  GYRE_CHECK(under_way_ && kind_ == RequestKind::kExpect && done_ == 0);
  for (; done_ < posted_; ++done_) {
    RETURN_IF_ERROR(communicator.Withdraw(requests_[done_ % kWindow]));
  }
  under_way_ = false;
  return absl::OkStatus();
}

}  // namespace gyre
