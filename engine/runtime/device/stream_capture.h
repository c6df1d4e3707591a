// stream_capture.h: the rules of a capture of several streams, CUDA's, the same on every device.
//
// A stream joins by waiting for an event recorded in the capture.  At the end it must be back: the
// stream that began the capture has waited, itself or through others, for all that came on it.
// Events tie points of one capture together and nothing else.  Streams of one capture belong to one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace gyre {

// What is being captured.  A device derives from it what it writes down.
struct Capture {
  virtual ~Capture() = default;
  bool ended = false;
  absl::Status status;  // the first error within it
  // By stream, in the order in which they joined, and by stream again: how many of that one's
  // calls lie before what comes next.
  std::vector<std::vector<int64_t>> passed = {};
};

// A point of a captured stream, as an event keeps it.
struct CapturePoint {
  std::shared_ptr<Capture> capture;  // null: of none
  std::vector<int64_t> passed;       // as in Capture
};

// A stream's part in captures, one after the other.
class StreamCapture {
 public:
  bool active() const { return capture_ != nullptr && !capture_->ended; }
  // The stream began it.
  bool began() const { return active() && index_ == 0; }
  Capture& capture() const { return *capture_; }  // Precondition: active.

  // Makes it the capture's error if there is none yet, and gives it back.  Precondition: active.
  absl::Status Keep(absl::Status status) const;
  // OK where no capture is active; else FailedPrecondition, which End reports as well.
  absl::Status Refuse(const char* call) const;

  absl::Status Begin(std::shared_ptr<Capture> capture);
  // One more call has been written down.  Precondition: active.
  void AddCall() const { ++capture_->passed[index_][index_]; }
  CapturePoint Here() const;  // of no capture where none is active
  // Before a wait for an event recorded at `point`; may make the stream join.  Afterwards the wait
  // is to be written down where a capture is active.  Errors: FailedPrecondition where just one of
  // the two is in the capture, or it has ended.
  absl::Status Wait(const CapturePoint& point);
  // Errors: FailedPrecondition where this stream has not begun one, or another one is not back;
  // the capture's own.  It has ended in any case, unless another stream began it.
  absl::Status End();

 private:
  std::shared_ptr<Capture> capture_;
  size_t index_ = 0;  // in Capture::passed
};

}  // namespace gyre
