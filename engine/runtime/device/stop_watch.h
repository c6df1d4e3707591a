// stop_watch.h: the time of work on a stream, by events on a GPU, whose host runs ahead, and by the
// clock elsewhere.  Used by the thread that owns the stream.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/runtime/device/device.h"

namespace gyre {

class StopWatch {
 public:
  virtual ~StopWatch() = default;
  // Mark the two points of the stream between which time is taken.  Errors: the stream's.
  virtual absl::Status Start() = 0;
  virtual absl::Status Stop() = 0;
  // Blocks until the second point.  Precondition: Start and Stop.  Errors: those of the work.
  virtual absl::StatusOr<double> Seconds() = 0;
};

// The stream must outlive the result.  Errors: those of making events.
absl::StatusOr<std::unique_ptr<StopWatch>> NewStopWatch(Stream& stream);

}  // namespace gyre
