// decimal.h: compares numbers that people and files write as decimals.  Pure functions.
//
// A double is seldom its decimal, and a difference or product of two less so.  0.9 - 0.7 is above
// 0.2, and 0.1 * 30 above 3.  Numbers that differ by such rounding alone count as equal.
#pragma once

#include <cmath>

namespace gyre {

// Compare a time, which storage as F32 may have rounded by up to 2^-24 of it, with a border.
inline constexpr double kTimeRounding = 0x1p-22;
inline bool IsAtMost(double time, double border) {
  return time <= border + kTimeRounding * std::fabs(border);
}
inline bool IsAtLeast(double time, double border) {
  return time >= border - kTimeRounding * std::fabs(border);
}

// Return the next integer above or below x >= 0, a product or quotient of a few doubles.  x stays
// itself if it is an integer but for their rounding.
inline constexpr double kProductRounding = 0x1p-50;
inline double CeilOfProduct(double x) { return std::ceil(x - kProductRounding * x); }
inline double FloorOfProduct(double x) { return std::floor(x + kProductRounding * x); }

}  // namespace gyre
