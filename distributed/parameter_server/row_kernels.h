// row_kernels.h: moves and adds rows at places of a table.  All memory is the device's.  Each
// function enqueues on stream, and its memory outlives the work.
#pragma once

#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/device.h"

namespace gyre {

// Places of `count` rows, as I32 in device memory.  If index is null: first, first + 1, ...
struct RowIndices {
  const int32_t* index = nullptr;
  int64_t first = 0, count = 0;
};

// packed[k] <- table[place k].  Both have rows of `width` elements of one real type, or packed has
// F16 or BF16 and table F32, here and below.  Consecutive rows of one type are copied, so `packed`
// may then be host memory, as in ScatterRows.
absl::Status GatherRows(Stream& stream, RowIndices places, int64_t width, Tensor table,
                        Tensor packed);
// table[place k] <- packed[k].  Precondition: no place is named twice.
absl::Status ScatterRows(Stream& stream, RowIndices places, int64_t width, Tensor packed,
                         Tensor table);
// table[place k] += factor * packed[k], in AccumulateDType, rounded once.  Precondition: likewise.
absl::Status AddScaledRows(Stream& stream, RowIndices places, int64_t width, double factor,
                           Tensor packed, Tensor table);

// Sets all elements, of a real type, to 0.
absl::Status FillWithZeros(Stream& stream, Tensor values);

// Rounds each F32 element to `to`, F16 or BF16, and back.
absl::Status RoundTo(Stream& stream, DType to, Tensor values);

}  // namespace gyre
