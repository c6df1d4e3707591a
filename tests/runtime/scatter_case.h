// scatter_case.h: rows to be added to random destinations, and what must come of it: sums in the
// order of the rows, which the bits of float show.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/runtime/host_device.h"

namespace gyre {

// A functor for ScatterAdd.
struct AddRows {
  const int64_t* destination;
  const float* x;
  float* y;
  int64_t columns;

  HOST_DEVICE int64_t Destination(int64_t row) const { return destination[row]; }
  HOST_DEVICE void Add(int64_t row, int64_t to, int64_t column) const {
    y[to * columns + column] += x[row * columns + column];
  }
};

struct ScatterCase {
  // values: [rows, columns].  Some rows have no destination.
  template <typename Random>
  ScatterCase(const std::vector<double>& values, int64_t rows, int64_t columns,
              int64_t destinations, Random& random)
      : columns(columns),
        x(values.begin(), values.end()),
        destination(rows),
        fresh(destinations * columns, 0.5f),
        expected(fresh) {
    for (int64_t& d : destination) {
      d = std::uniform_int_distribution<int64_t>(-1, destinations - 1)(random);
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t to = destination[i / columns];
      if (to >= 0) expected[to * columns + i % columns] += x[i];
    }
  }

  AddRows Into(std::vector<float>& y) const {
    return {destination.data(), x.data(), y.data(), columns};
  }

  int64_t columns;
  std::vector<float> x;
  std::vector<int64_t> destination;
  std::vector<float> fresh, expected;  // [destinations, columns]: before, and after
};

}  // namespace gyre
