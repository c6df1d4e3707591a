// transfer.h: one message of any length, in segments, as a state machine.
#pragma once

#include <algorithm>
#include <array>

#include "distributed/transport/communicator.h"

namespace gyre {

class Transfer {
 public:
  // Precondition: !under_way().  The memory stays valid until Progress returns true.  kExpect has
  // no time limit (Communicator::Expect).
  absl::Status Begin(Communicator& communicator, RequestKind kind, std::byte* data, size_t bytes,
                     int peer, int tag);
  bool under_way() const { return under_way_; }
  size_t left() const { return under_way_ ? bytes_ - std::min(bytes_, done_ * kSegmentBytes) : 0; }
  // Returns true once, when it is done.  Never blocks.
  absl::StatusOr<bool> Progress(Communicator& communicator);
  // Ends a kExpect.  Precondition: under_way(), and no segment has arrived.
  absl::Status Withdraw(Communicator& communicator);

 private:
  // The largest that Open MPI moves over TCP at full speed.  kWindow at once keep a link busy.
  static constexpr size_t kSegmentBytes = 256 << 10;
  static constexpr size_t kWindow = 4;

  absl::Status Post(Communicator& communicator);
  size_t segments() const { return bytes_ == 0 ? 1 : (bytes_ + kSegmentBytes - 1) / kSegmentBytes; }

  RequestKind kind_ = RequestKind::kSend;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int peer_ = 0, tag_ = 0;
  bool under_way_ = false;
  size_t posted_ = 0, done_ = 0;  // segments
  std::array<Request, kWindow> requests_ = {};
};

}  // namespace gyre
