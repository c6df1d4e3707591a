// host_event.h: the Event of the cpu and sim devices.  Record replaces the event's completion, so
// that a Wait, which keeps the completion it found, is not moved by a later Record: CUDA's rule.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/stream_capture.h"

namespace gyre {

// A point in a stream: passed once, with the first error of the work before it.  Thread-safe.
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
  // Where in a capture it was recorded last, if it was in one, and which of the graph's events the
  // record is.
  struct Captured {
    CapturePoint point = {};
    size_t event = 0;
  };

  absl::StatusOr<bool> Done() const override;
  absl::Status Synchronize() const override;

  // A completion of its own for a new point, which from now on is the event's.
  std::shared_ptr<Completion> Renew();
  std::shared_ptr<Completion> latest() const;  // null if never recorded
  // In place of Renew, of a record within a capture.
  void SetCaptured(Captured captured);
  Captured captured() const;

 private:
  absl::StatusOr<std::shared_ptr<Completion>> Ask(const char* call) const;

  mutable std::mutex mutex_;
  std::shared_ptr<Completion> latest_;
  Captured captured_;
};

// Every event that reaches a stream of cpu or sim is a HostEvent; another device's is a bug.
HostEvent& AsHostEvent(Event& event);
const HostEvent& AsHostEvent(const Event& event);

}  // namespace gyre
