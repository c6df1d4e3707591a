// monoid_check.h: checks that a reduction functor (engine/runtime/parallel/parallel.h) obeys the
// laws that ForEachRow and ReduceColumns rely on.  For the tests of every functor of that kind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace gyre {

// Combines values[begin, end) in their order, bracketed at random.  Precondition: begin < end.
template <typename R>
typename R::Value CombineBracketed(const R& r, const std::vector<typename R::Value>& values,
                                   size_t begin, size_t end, std::mt19937_64& random) {
  if (end - begin == 1) return values[begin];
  const size_t middle = std::uniform_int_distribution<size_t>(begin + 1, end - 1)(random);
  return r.Combine(CombineBracketed(r, values, begin, middle, random),
                   CombineBracketed(r, values, middle, end, random));
}

// Whether `r` is a commutative monoid on the rows that it loads, [rows, columns], columns >= 1:
// identity on both sides, and any order and bracketing of a row gives the same, where
// near(a, b) says which values count as the same: equality, or a tolerance for rounding.
// Loads, never stores.
template <typename R, typename Near>
testing::AssertionResult IsMonoid(const R& r, int64_t rows, int64_t columns, Near near,
                                  uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<typename R::Value> values;
    for (int64_t column = 0; column < columns; ++column) {
      values.push_back(r.Load(row, column));
      const typename R::Value& v = values.back();
      if (!near(r.Combine(r.Identity(), v), v) || !near(r.Combine(v, r.Identity()), v)) {
        return testing::AssertionFailure()
               << "Identity changes the value at row " << row << ", column " << column;
      }
    }
    typename R::Value expected = values[0];
    for (size_t i = 1; i < values.size(); ++i) expected = r.Combine(expected, values[i]);
    for (int trial = 0; trial < 20; ++trial) {
      if (!near(CombineBracketed(r, values, 0, values.size(), random), expected)) {
        return testing::AssertionFailure() << "not associative on row " << row;
      }
    }
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<typename R::Value> shuffled = values;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      if (!near(CombineBracketed(r, shuffled, 0, shuffled.size(), random), expected)) {
        return testing::AssertionFailure() << "not commutative on row " << row;
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace gyre
