// row_by_row.h: base of a TransformRows functor that reduces nothing.  Apply gets each element's
// row and column, so no index is divided, and a CPU's loop over columns is vectorised.
#pragma once

#include "engine/runtime/parallel/parallel.h"

namespace gyre {

struct RowByRow {
  struct Value {};
  HOST_DEVICE Value Identity() const { return {}; }
  HOST_DEVICE Value Load(int64_t, int64_t) const { return {}; }
  HOST_DEVICE Value Combine(Value, Value) const { return {}; }
  HOST_DEVICE Value Finish(Value) const { return {}; }
};

}  // namespace gyre
