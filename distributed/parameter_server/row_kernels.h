// row_kernels.h: rows that are moved and added by an index of their places.  All memory is the
// device's; everything enqueues on stream and must outlive the work.
#pragma once

#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/device.h"

namespace gyre {

// A place for each of `count` rows: in device memory, I32; or, where that is null, all in order
// from `first` on.
struct RowIndices {
  const int32_t* index = nullptr;
  int64_t first = 0, count = 0;
};

// packed[k] <- table[place k].  table, packed: rows of `width` elements, here and below of one real
// type, or packed ones of 16 bits and a table of F32.
absl::Status GatherRows(Stream& stream, RowIndices places, int64_t width, Tensor table,
                        Tensor packed);
// table[place k] <- packed[k].  No place twice.
absl::Status ScatterRows(Stream& stream, RowIndices places, int64_t width, Tensor packed,
                         Tensor table);
// table[place k] += packed[k], added in AccumulateDType and rounded once.  No place twice.
absl::Status AddRows(Stream& stream, RowIndices places, int64_t width, Tensor packed, Tensor table);
// table[place k] += factor * packed[k], likewise.
absl::Status AddScaledRows(Stream& stream, RowIndices places, int64_t width, double factor,
                           Tensor packed, Tensor table);

// table[place k] <- 0.
absl::Status ClearRows(Stream& stream, RowIndices places, int64_t width, Tensor table);

// Each element of F32 rounded to `to`, of 16 bits, and back.
absl::Status RoundTo(Stream& stream, DType to, Tensor values);

}  // namespace gyre
