// host_capture.h: what the cpu and sim devices share of captured work: a list of calls, which a
// replay hands to Stream::Call one by one.  Belongs to one stream, and to its thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/runtime/device/device.h"

namespace gyre {

class HostCapture {
 public:
  using Work = std::function<absl::Status()>;

  bool active() const { return work_.has_value(); }
  // Precondition: active.
  void Add(Work work) { work_->push_back(std::move(work)); }
  // OK where no capture is active; else FailedPrecondition, which End reports as well.
  absl::Status Refuse(const char* call);

  absl::Status Begin();
  absl::StatusOr<std::unique_ptr<Graph>> End();

 private:
  std::optional<std::vector<Work>> work_;
  absl::Status status_;
};

}  // namespace gyre
