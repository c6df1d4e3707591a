// any_parallel.h: the loop skeletons on integers, whose sums are exact in any order, compiled for
// every device: a race or a lost element shows in the result.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/runtime/device/device.h"

namespace gyre {

enum class Skeleton { kForEach, kForEachCell, kForEachRow, kReduceColumns, kTransformRows };

// Of x: [rows, columns]; y: [rows, columns] x + 1; [rows] or [columns] sums; or [rows, columns]
// x - the sum of its row.  scratch: AnyParallelScratch bytes, or null: sums in one piece.  Device
// memory.  Enqueues on stream.
absl::Status AnyParallel(Stream& stream, Skeleton skeleton, int64_t rows, int64_t columns,
                         const int64_t* x, int64_t* y, void* scratch);
size_t AnyParallelScratch(Skeleton skeleton, int64_t rows, int64_t columns);

// ScatterAdd of AddRows (scatter_case.h).
absl::Status AnyScatter(Stream& stream, int64_t rows, int64_t columns, const int64_t* destination,
                        const float* x, float* y);

}  // namespace gyre
