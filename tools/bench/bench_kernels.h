// bench_kernels.h: the reductions of a training step, for bench_ops, compiled for every device.
#pragma once

#include "absl/status/status.h"
#include "engine/runtime/device/device.h"

namespace gyre {

enum class Reduction { kColumns, kSquares };  // as for a bias's gradient, a bucket's sum of squares

// Sums columns of from [rows, columns] to to[columns], or all squares to to[1] (F64).  `scratch`
// has ReductionScratch bytes, or is null, for a reduction in one range.  Enqueues on stream.
absl::Status Reduce(Stream& stream, Reduction reduction, DType dtype, int64_t rows, int64_t columns,
                    const void* from, void* to, void* scratch);
size_t ReductionScratch(Reduction reduction, DType dtype, int64_t rows, int64_t columns);

}  // namespace gyre
