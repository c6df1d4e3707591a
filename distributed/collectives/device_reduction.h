// device_reduction.h: the loops of reduction.h in device memory, on a stream.  Sums have the same
// bits.  Squares are added in another order, which depends on the length alone.
#pragma once

#include <cstdint>

#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/device.h"

namespace gyre {

// Device memory for one measure.  A thread block works on a row, and kRows suffice for the
// multiprocessors of any GPU (an H100 has 132).
struct DeviceMeasure {
  static constexpr int64_t kRows = 256;
  double rows[kRows];
  double total;
};

// All take `count` elements of a real type in device memory, and enqueue on stream.

// sum[i] += addend[i].
absl::Status EnqueueAdd(Stream& stream, DType dtype, void* sum, const void* addend, int64_t count);
// Sets measure->total, in device memory, to the result of Measure.
absl::Status EnqueueMeasure(Stream& stream, DType dtype, const void* data, int64_t count,
                            DeviceMeasure* measure);

}  // namespace gyre
