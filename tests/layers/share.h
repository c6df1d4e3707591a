// share.h: a tensor's values, and ranks' shares of them along the axis of samples.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/layers/slot.h"

namespace gyre {

struct Values {
  Shape shape;
  Doubles values;
};

// Shares side by side; scalars are added.
Values Join(const std::vector<Values>& parts, int axis);
// Samples [begin, end).
Values Cut(const Values& whole, int axis, int64_t begin, int64_t end);

}  // namespace gyre
