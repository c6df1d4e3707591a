// two_sums.h: two numbers that a reduction adds up side by side.
#pragma once

#include "engine/runtime/host_device.h"

namespace gyre {

template <typename A>
struct TwoSums {
  using Component = A;  // see parallel.h
  A first = 0, second = 0;
  HOST_DEVICE TwoSums operator+(TwoSums other) const {
    return {first + other.first, second + other.second};
  }
};

}  // namespace gyre
