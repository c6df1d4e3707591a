// bench_kernels.h: the reductions of a training step, for bench_ops, compiled for every device.
#pragma once

#include "absl/status/status.h"
#include "engine/runtime/device/device.h"

namespace gyre {

enum class Reduction { kColumns, kSquares };  // a bias's gradient; a bucket's sum of squares

// to[columns] <- sums of the columns of from: [rows, columns]; or to[1] (F64) <- the sum of the
// squares of all.  scratch: ReductionScratch bytes, or null: in one piece.  Enqueues on stream.
absl::Status Reduce(Stream& stream, Reduction reduction, DType dtype, int64_t rows, int64_t columns,
                    const void* from, void* to, void* scratch);
size_t ReductionScratch(Reduction reduction, DType dtype, int64_t rows, int64_t columns);

}  // namespace gyre
