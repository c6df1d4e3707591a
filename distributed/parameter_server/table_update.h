// table_update.h: how an owner changes its rows by the updates that workers send.
#pragma once

#include <memory>
#include <vector>

#include "distributed/parameter_server/row_kernels.h"

namespace gyre {

// This rank's shard of a table, or a chunk of it, in device memory.
struct OwnedRows {
  Tensor values;
  // TableUpdate::slots() tensors of the shape of `values`, in AccumulateDType, zero at first.
  std::vector<Tensor> slots;
  int64_t first = 0;  // index of the first row in the table
  int64_t width = 0;
  int chunk = 0;  // within the shard, from 0
};

// Immutable.  Called by the driving thread.
class TableUpdate {
 public:
  virtual ~TableUpdate() = default;
  virtual int slots() const { return 0; }
  // Changes the rows of a chunk at `places` by `sent`, and enqueues on stream.  With kBsp `sent` is
  // the sum of an iteration's updates, added in the order of ranks.  Otherwise it is the update of
  // one worker.  `clock` is its iteration, from 0, which may differ between chunks.
  virtual absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices places, Tensor sent,
                             int64_t clock) const = 0;
};

// values += factor * sent.  Minus the learning rate as the factor gives gradient descent.
std::unique_ptr<TableUpdate> NewAddition(double factor);

}  // namespace gyre
