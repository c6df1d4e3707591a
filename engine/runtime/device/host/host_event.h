// host_event.h: the Event of the cpu and sim devices.  Record replaces the event's completion, and
// a Wait keeps the completion it found.  A later Record does not move it, which is CUDA's rule.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/stream_capture.h"

namespace gyre {

// A point in a stream, passed once, with the first error of the work before it.  Thread-safe.
class Completion {
 public:
  void Finish(const absl::Status& status);
  void Reset();  // as new
  absl::Status Wait() const;
  std::optional<absl::Status> result() const;  // nullopt while the stream has not come here

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::optional<absl::Status> result_;
};

class HostEvent : public Event {
 public:
  // The last record, if it was in a capture.  `event` is its number among the graph's events.
  struct Captured {
    CapturePoint point = {};
    size_t event = 0;
  };

  absl::StatusOr<bool> Done() const override;
  absl::Status Synchronize() const override;

  // Returns an unshared completion for a new point, which becomes the event's.
  std::shared_ptr<Completion> Renew();
  std::shared_ptr<Completion> latest() const;  // null if never recorded
  // Replaces Renew for a record within a capture.
  void SetCaptured(Captured captured);
  Captured captured() const;

 private:
  absl::StatusOr<std::shared_ptr<Completion>> Ask(const char* call) const;

  mutable std::mutex mutex_;
  std::shared_ptr<Completion> latest_;
  Captured captured_;
};

// Precondition: the event is of the cpu or sim device.
HostEvent& AsHostEvent(Event& event);
const HostEvent& AsHostEvent(const Event& event);

}  // namespace gyre
