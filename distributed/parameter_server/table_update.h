// table_update.h: what the owner of rows makes of what workers send for them.
#pragma once

#include <memory>
#include <vector>

#include "distributed/parameter_server/row_kernels.h"

namespace gyre {

// This rank's part of a table, or a chunk of it, in device memory: rows of `width` elements.
struct OwnedRows {
  Tensor values;
  // As TableUpdate asks, zero at first: each of the values' shape and AccumulateDType.
  std::vector<Tensor> slots;
  int64_t first = 0;  // the table's number of the first of these rows
  int64_t width = 0;
  int chunk = 0;  // of the part, from 0
};

// Immutable; called by whoever drives.
class TableUpdate {
 public:
  virtual ~TableUpdate() = default;
  virtual int slots() const { return 0; }
  // Changes the rows at `places` of a chunk by what workers have sent for them: in bsp the sum of
  // all workers' of an iteration, added in the order of ranks; otherwise what one worker sent.
  // clock: the iteration that it is of, from 0; chunks of a part may be of different ones.
  // Enqueues on stream.
  virtual absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices places, Tensor sent,
                             int64_t clock) const = 0;
};

// values += factor * what was sent: with a factor of minus the learning rate, gradient descent.
std::unique_ptr<TableUpdate> NewAddition(double factor);

}  // namespace gyre
