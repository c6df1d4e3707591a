// stream_capture.h: CUDA's rules for a capture of several streams, the same on every device.
//
// A stream joins by waiting for an event recorded in the capture.  By the end it must be back.  The
// stream that began the capture has then waited, itself or through others, for its last work.
// Events tie points of one capture alone.  Its streams belong to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace gyre {

// A capture under way.  A device derives a class that also stores the calls.
struct Capture {
  virtual ~Capture() = default;
  bool ended = false;
  absl::Status status;  // the first error within it
  // passed[s][t] is the number of stream t's calls that precede the next call of stream s.  Streams
  // are numbered in the order in which they joined.
  std::vector<std::vector<int64_t>> passed = {};
};

// A point of a captured stream, as an event stores it.
struct CapturePoint {
  std::shared_ptr<Capture> capture;  // null: no capture
  std::vector<int64_t> passed;       // the stream's row of Capture::passed
};

// A stream's membership in captures, one after another.
class StreamCapture {
 public:
  bool active() const { return capture_ != nullptr && !capture_->ended; }
  bool began() const { return active() && index_ == 0; }
  Capture& capture() const { return *capture_; }  // Precondition: active.

  // Stores `status` as the capture's error, unless it has one, and returns it.  Precondition:
  // active.
  absl::Status Keep(absl::Status status) const;
  // Returns OK if no capture is active, else FailedPrecondition, which End reports as well.
  absl::Status Refuse(const char* call) const;

  absl::Status Begin(std::shared_ptr<Capture> capture);
  // Counts one more stored call.  Precondition: active.
  void AddCall() const { ++capture_->passed[index_][index_]; }
  CapturePoint Here() const;  // of no capture if none is active
  // Called before a wait for an event recorded at `point`.  The stream may join.  If a capture is
  // active afterwards, the wait is to be stored.  Errors: FailedPrecondition if the active capture
  // is another than the point's, or the point's has ended.
  absl::Status Wait(const CapturePoint& point);
  // Ends the capture, unless another stream began it.  Errors: FailedPrecondition if this stream
  // began none or another is not back, or the capture's own error.
  absl::Status End();

 private:
  std::shared_ptr<Capture> capture_;
  size_t index_ = 0;  // in Capture::passed
};

}  // namespace gyre
