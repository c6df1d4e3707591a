// median.h: the middle of what was measured, which an outlier does not move.
#pragma once

#include <algorithm>
#include <vector>

namespace gyre {

// Of two in the middle, the larger.  Precondition: there are any.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace gyre
