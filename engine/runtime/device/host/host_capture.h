// host_capture.h: what the cpu and sim devices share of captured work: a list of calls, records and
// waits of the streams of a capture, which a replay hands to these one by one.  Belongs to one
// stream, and to its thread.
#pragma once

#include <functional>
#include <memory>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/host/host_event.h"
#include "engine/runtime/device/stream_capture.h"

namespace gyre {

class HostCapture {
 public:
  using Work = std::function<absl::Status()>;

  // Of a stream's, which outlives it.
  explicit HostCapture(Stream& stream) : stream_(stream) {}

  bool active() const { return part_.active(); }
  // Precondition of both: active.
  void Add(Work work);
  void Record(HostEvent& event);
  // Before every wait.  The wait is written down if a capture is active afterwards, and not to be
  // enqueued then.
  absl::Status Wait(const HostEvent& event);
  absl::Status Refuse(const char* call) const { return part_.Refuse(call); }

  absl::Status Begin();
  absl::StatusOr<std::unique_ptr<Graph>> End();

 private:
  Stream& stream_;
  StreamCapture part_;
};

}  // namespace gyre
