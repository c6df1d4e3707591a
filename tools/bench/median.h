// median.h: the median of measurements, which an outlier does not move.
#pragma once

#include <algorithm>
#include <vector>

namespace gyre {

// The larger of two in the middle.  Precondition: values is not empty.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace gyre
