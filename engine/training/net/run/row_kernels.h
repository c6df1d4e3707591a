// row_kernels.h: kernels for the rows of a table's gradient that a step touched.  All memory is the
// device's, and all enqueue on stream.
#pragma once

#include "engine/runtime/device/device.h"

namespace gyre {

// Puts `indices` (I32, at most a_batch) at the front of `kept` (I32), which drops its oldest
// a_batch.  An index outside [0, rows), or a missing one, is -1.
absl::Status KeepIndices(Stream& stream, Tensor indices, int64_t rows, int64_t a_batch,
                         Tensor kept);

// names[k] <- kept[k], or -1 if an earlier entry is equal.  `first` is scratch, I32 [rows].
// `names` is I32 or F64.
absl::Status NameRows(Stream& stream, Tensor kept, Tensor first, Tensor names);

// values[k] <- row names[k] of the table, of `width` columns, or zeros if names[k] (F64) is
// negative.  `values` and `table` are of one real type.
absl::Status PackRows(Stream& stream, Tensor names, int64_t width, Tensor table, Tensor values);

// Row names[k] of the table <- values[k], unless names[k] (I32, no duplicates) is negative.
absl::Status UnpackRows(Stream& stream, Tensor names, int64_t width, Tensor values, Tensor table);

}  // namespace gyre
