// row_kernels.h: what is done to the rows of a table's gradient that a step has touched.  All
// memory is the device's; everything enqueues on stream.
#pragma once

#include "engine/runtime/device/device.h"

namespace gyre {

// kept: I32, the indices of the last batches, the latest first, `a_batch` of each; the earliest
// make room for `indices` (I32, at most so many).  Those that are none of `rows`, and the rest, are
// -1.
absl::Status KeepIndices(Stream& stream, Tensor indices, int64_t rows, int64_t a_batch,
                         Tensor kept);

// names[k] <- kept[k], or -1 where an earlier one is the same.  first: I32 [rows], scratch; names:
// I32 or F64.
absl::Status NameRows(Stream& stream, Tensor kept, Tensor first, Tensor names);

// values[k] <- row names[k] of the table, of `width` columns; zeros where it is negative.  names:
// F64; values and table: of one real type.
absl::Status PackRows(Stream& stream, Tensor names, int64_t width, Tensor table, Tensor values);

// Row names[k] of the table <- values[k], unless it is negative.  names: I32, no two the same.
absl::Status UnpackRows(Stream& stream, Tensor names, int64_t width, Tensor values, Tensor table);

}  // namespace gyre
