// host_capture.h: captures on the cpu and sim devices.  A capture stores the calls, records and
// waits of its streams, and a replay repeats them.  Belongs to one stream, and to its thread.
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

  // `stream` must outlive the object.
  explicit HostCapture(Stream& stream) : stream_(stream) {}

  bool active() const { return part_.active(); }
  // Precondition of both: active.
  void Add(Work work);
  void Record(HostEvent& event);
  // Called before every wait.  If a capture is active afterwards, the wait is stored, not enqueued.
  absl::Status Wait(const HostEvent& event);
  absl::Status Refuse(const char* call) const { return part_.Refuse(call); }

  absl::Status Begin();
  absl::StatusOr<std::unique_ptr<Graph>> End();

 private:
  Stream& stream_;
  StreamCapture part_;
};

}  // namespace gyre
