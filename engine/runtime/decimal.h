// decimal.h: comparisons of what people and files write as decimals.
//
// A binary number is seldom the decimal that it stands for, and a difference or a product of two is
// less so: 0.9 - 0.7 is above 0.2, and 0.1 * 30 above 3.  Numbers that differ by no more than such
// rounding are taken for equal.  Pure functions.
#pragma once

#include <cmath>

namespace gyre {

// Of a time that may have been kept as F32, which rounds it by up to 2^-24 of it, against a border.
inline constexpr double kTimeRounding = 0x1p-22;
inline bool IsAtMost(double time, double border) {
  return time <= border + kTimeRounding * std::fabs(border);
}
inline bool IsAtLeast(double time, double border) {
  return time >= border - kTimeRounding * std::fabs(border);
}

// The next integer above or below a product or quotient of a few doubles, x >= 0, or x itself if it
// is one but for their rounding.
inline constexpr double kProductRounding = 0x1p-50;
inline double CeilOfProduct(double x) { return std::ceil(x - kProductRounding * x); }
inline double FloorOfProduct(double x) { return std::floor(x + kProductRounding * x); }

}  // namespace gyre
