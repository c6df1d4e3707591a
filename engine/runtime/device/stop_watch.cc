#include "engine/runtime/device/stop_watch.h"

#include <chrono>

#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_device.h"

namespace gyre {
namespace {

class HostWatch : public StopWatch {
 public:
  explicit HostWatch(Stream& stream) : stream_(stream) {}
  absl::Status Start() override { return Mark(start_); }
  absl::Status Stop() override { return Mark(stop_); }
  absl::StatusOr<double> Seconds() override {
    return std::chrono::duration<double>(stop_ - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  absl::Status Mark(Clock::time_point& point) {
    RETURN_IF_ERROR(stream_.Synchronize());
    point = Clock::now();
    return absl::OkStatus();
  }

  Stream& stream_;
  Clock::time_point start_, stop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StopWatch>> NewStopWatch(Stream& stream) {
  if (stream.kind() == DeviceKind::kCuda) return NewCudaStopWatch(stream);
  return std::make_unique<HostWatch>(stream);
}

}  // namespace gyre
