// stop_watch.h on a GPU: two events that keep the time, which those of NewEvent do not.
#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_device.h"

namespace gyre {
namespace {

absl::Status Check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();  // or it would be the next kernel launch's
  return absl::InternalError(absl::StrCat(call, ": ", cudaGetErrorString(code)));
}

// Stream::native makes the GPU the calling thread's, which each call here needs.
class CudaStopWatch : public StopWatch {
 public:
  explicit CudaStopWatch(Stream& stream) : stream_(stream) {}
  ~CudaStopWatch() override {
    (void)stream_.native();
    for (const cudaEvent_t event : {start_, stop_}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    (void)cudaGetLastError();
  }

  absl::Status Create() {
    (void)stream_.native();
    for (cudaEvent_t* event : {&start_, &stop_}) {
      RETURN_IF_ERROR(
          Check(cudaEventCreateWithFlags(event, cudaEventDefault), "cudaEventCreateWithFlags"));
    }
    return absl::OkStatus();
  }

  absl::Status Start() override { return Mark(start_); }
  absl::Status Stop() override { return Mark(stop_); }
  absl::StatusOr<double> Seconds() override {
    (void)stream_.native();
    RETURN_IF_ERROR(Check(cudaEventSynchronize(stop_), "cudaEventSynchronize"));
    float milliseconds = 0;
    RETURN_IF_ERROR(
        Check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime"));
    return milliseconds * 1e-3;
  }

 private:
  absl::Status Mark(cudaEvent_t event) {
    return Check(cudaEventRecord(event, static_cast<cudaStream_t>(stream_.native())),
                 "cudaEventRecord");
  }

  Stream& stream_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StopWatch>> NewCudaStopWatch(Stream& stream) {
  auto watch = std::make_unique<CudaStopWatch>(stream);
  RETURN_IF_ERROR(watch->Create());
  return watch;
}

}  // namespace gyre
