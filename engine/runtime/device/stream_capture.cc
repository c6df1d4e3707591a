#include "engine/runtime/device/stream_capture.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::Status StreamCapture::Keep(absl::Status status) const {
  capture_->status.Update(status);
  return status;
}

absl::Status StreamCapture::Refuse(const char* call) const {
  if (!active()) return absl::OkStatus();
  return Keep(absl::FailedPreconditionError(absl::StrCat(call, " within a capture")));
}

absl::Status StreamCapture::Begin(std::shared_ptr<Capture> capture) {
  RETURN_IF_ERROR(Refuse("BeginCapture"));
  capture_ = std::move(capture);
  capture_->passed = {{0}};
  index_ = 0;
  return absl::OkStatus();
}

CapturePoint StreamCapture::Here() const {
  if (!active()) return {};
  return {capture_, capture_->passed[index_]};
}

absl::Status StreamCapture::Wait(const CapturePoint& point) {
  const bool ended = point.capture != nullptr && point.capture->ended;
  if (active() && point.capture != capture_) {
    return Keep(absl::FailedPreconditionError(
        "Wait within a capture for an event that was not recorded in it"));
  }
  if (ended) {
    return absl::FailedPreconditionError("Wait for an event recorded in a capture, which is over");
  }
  if (point.capture == nullptr) return absl::OkStatus();
  if (!active()) {
    capture_ = point.capture;
    index_ = capture_->passed.size();
    capture_->passed.emplace_back(index_ + 1);
  }
  std::vector<int64_t>& passed = capture_->passed[index_];
  passed.resize(std::max(passed.size(), point.passed.size()));
  for (size_t i = 0; i < point.passed.size(); ++i) passed[i] = std::max(passed[i], point.passed[i]);
  AddCall();
  return absl::OkStatus();
}

absl::Status StreamCapture::End() {
  if (!active()) return absl::FailedPreconditionError("EndCapture without BeginCapture");
  if (index_ != 0) {
    return Keep(absl::FailedPreconditionError("EndCapture on a stream that joined the capture"));
  }
  std::vector<int64_t>& back = capture_->passed[0];
  back.resize(capture_->passed.size());
  for (size_t i = 1; i < back.size(); ++i) {
    if (back[i] == capture_->passed[i][i]) continue;
    (void)Keep(absl::FailedPreconditionError(
        absl::StrCat("EndCapture: expected a wait for the last work of each stream that joined; "
                     "of number ",
                     i, " there is none")));
    break;
  }
  capture_->ended = true;
  return std::exchange(capture_, nullptr)->status;
}

}  // namespace gyre
