// softmax_pass.h: base of a functor that finds a row's largest score and the sum of exponentials
// relative to it in one pass.  The derived functor defines Load and Apply.
//
// A NaN or +inf, or a row of -inf, makes its row NaN.
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
#pragma once

#include <cmath>

#include "engine/runtime/elementary.h"
#include "engine/runtime/host_device.h"

namespace gyre {

template <typename A>
struct MaxAndExpSum {
  A largest, sum;  // sum: of exp(score - largest)
};

template <typename A>
struct SoftmaxPass {
  using Value = MaxAndExpSum<A>;

  HOST_DEVICE Value Identity() const { return {-static_cast<A>(INFINITY), 0}; }
  HOST_DEVICE Value Combine(Value a, Value b) const {
    const bool b_is_larger = a.largest < b.largest;
    const A larger = b_is_larger ? b.largest : a.largest,
            smaller = b_is_larger ? a.largest : b.largest;
    // Equal infinities have no difference.  A NaN's takes it into the sum.
    const A scale = larger == smaller ? A{1} : Exp(smaller - larger);
    return {larger, b_is_larger ? b.sum + a.sum * scale : a.sum + b.sum * scale};
  }
  // The sum becomes its reciprocal, or NaN if the maximum is not finite.
  HOST_DEVICE Value Finish(Value v) const {
    return {v.largest, A{1} / v.sum + (v.largest - v.largest)};
  }
};

}  // namespace gyre
