#include "tools/bench/device_peaks.h"

#include <algorithm>

#include "engine/runtime/check.h"
#include "engine/runtime/primitives/cuda/trial_bench.h"
#include "engine/runtime/random.h"
#include "tools/bench/bench.h"

namespace gyre {
namespace {

// Where the F32 rate has levelled off: a CPU's, and that of a GPU, which needs thousands of tiles.
constexpr int64_t kCpuGemmSize = 2048, kGpuGemmSize = 8192;
// Beyond the caches of either.
constexpr size_t kCopyBytes = size_t{256} << 20;

template <typename Enqueue>
absl::StatusOr<double> Seconds(Stream& stream, Enqueue enqueue) {
  const BenchClock::time_point start = BenchClock::now();
  RETURN_IF_ERROR(enqueue());
  RETURN_IF_ERROR(stream.Synchronize());
  return SecondsSince(start);
}

}  // namespace

void FillUniform(const Tensor& to) {
  VisitReal(to.dtype, [&]<typename T>() {
    T* const values = to.as<T>();
    for (int64_t i = 0; i < to.elements(); ++i) {
      const RandomBits bits = Philox(/*key=*/1, 0, static_cast<uint64_t>(i));
      values[i] = static_cast<T>(2 * UniformFloat(bits.v[0]) - 1);
    }
  });
}

absl::StatusOr<std::unique_ptr<DevicePeaks>> DevicePeaks::Create(Device& device,
                                                                 const Primitives& primitives,
                                                                 DType dtype, Stream& stream) {
  auto peaks = std::make_unique<DevicePeaks>();
  const int64_t n = device.kind() == DeviceKind::kCuda ? kGpuGemmSize : kCpuGemmSize;
  peaks->size_ = n;
  ASSIGN_OR_RETURN(peaks->gemm_,
                   primitives.Prepare(GemmSpec{.dtype = dtype, .m = n, .n = n, .k = n}));
  const auto allocate = [&](MemoryKind kind, size_t bytes) {
    return Buffer::Allocate(device, kind, bytes);
  };
  const size_t matrix_bytes = static_cast<size_t>(n * n) * SizeOf(dtype);
  for (Buffer* matrix : {&peaks->a_, &peaks->b_, &peaks->c_}) {
    ASSIGN_OR_RETURN(*matrix, allocate(MemoryKind::kDevice, matrix_bytes));
  }
  ASSIGN_OR_RETURN(peaks->scratch_, allocate(MemoryKind::kDevice, peaks->gemm_->scratch_bytes()));
  ASSIGN_OR_RETURN(peaks->device_, allocate(MemoryKind::kDevice, kCopyBytes));
  ASSIGN_OR_RETURN(peaks->other_, allocate(MemoryKind::kDevice, kCopyBytes));
  ASSIGN_OR_RETURN(peaks->pinned_, allocate(MemoryKind::kPinnedHost, kCopyBytes));

  for (const Buffer* matrix : {&peaks->a_, &peaks->b_}) {
    RETURN_IF_ERROR(FillUniform(stream, matrix->data(), matrix_bytes, dtype, /*key=*/1));
  }
  return peaks;
}

absl::StatusOr<DevicePeaks::Rates> DevicePeaks::Measure(Stream& stream) const {
  ASSIGN_OR_RETURN(const double gemm, Seconds(stream, [&] {
                     return gemm_->Run(stream, a_.data(), b_.data(), nullptr, c_.data(),
                                       scratch_.data());
                   }));
  const auto copy = [&](const Buffer& to, const Buffer& from) {
    return Seconds(stream, [&] { return stream.Copy(to.data(), from.data(), kCopyBytes); });
  };
  ASSIGN_OR_RETURN(const double upload, copy(device_, pinned_));
  ASSIGN_OR_RETURN(const double within, copy(other_, device_));
  ASSIGN_OR_RETURN(const double download, copy(pinned_, other_));
  const double n = static_cast<double>(size_), bytes = kCopyBytes;
  return Rates{.gemm_flops = 2 * n * n * n / gemm,
               .device_bytes = bytes / within,
               .upload_bytes = bytes / upload,
               .download_bytes = bytes / download};
}

}  // namespace gyre
