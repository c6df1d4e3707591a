// device_peaks.h: measures a device's peak rates by a large matrix product and plain copies.
// Benchmarks divide by these rates, measured in the same minute.  Used by one thread.
#pragma once

#include <memory>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Fills host memory with the same uniform numbers in [-1, 1).  Precondition: IsReal(to.dtype).
void FillUniform(const Tensor& to);

class DevicePeaks {
 public:
  struct Rates {
    double gemm_flops = 0;                                          // FLOP/s
    double device_bytes = 0, upload_bytes = 0, download_bytes = 0;  // bytes copied a second
  };

  // `dtype` is that of the product's matrices.  device and primitives must outlive the result.
  // Errors: those of allocation and of Prepare.
  static absl::StatusOr<std::unique_ptr<DevicePeaks>> Create(Device& device,
                                                             const Primitives& primitives,
                                                             DType dtype, Stream& stream);

  // Runs each once and waits for the stream.  The first call is a warm-up.
  absl::StatusOr<Rates> Measure(Stream& stream) const;

 private:
  int64_t size_ = 0;
  std::unique_ptr<Gemm> gemm_;
  Buffer a_, b_, c_, scratch_;
  Buffer device_, other_, pinned_;
};

}  // namespace gyre
