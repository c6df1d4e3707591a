// softmax_pass.h: a row's largest score and the sum of exponentials relative to it, in one pass.
// SoftmaxPass is the base of a functor that defines Load and Apply.  LogSoftmaxRows is a functor.
//
// A NaN or +inf, or a row of -inf, makes its row NaN.
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/runtime/elementary.h"
#include "engine/runtime/host_device.h"

namespace gyre {

template <typename A>
struct MaxAndExpSum {
  A largest, sum;  // sum: of exp(score - largest)
};

// kLibraryExp: by std::exp in place of Exp, which differ for float.
template <typename A, bool kLibraryExp = false>
struct SoftmaxPass {
  using Value = MaxAndExpSum<A>;

  HOST_DEVICE Value Identity() const { return {-static_cast<A>(INFINITY), 0}; }
  HOST_DEVICE Value Combine(Value a, Value b) const {
    const bool b_is_larger = a.largest < b.largest;
    const A larger = b_is_larger ? b.largest : a.largest,
            smaller = b_is_larger ? a.largest : b.largest;
    // Equal infinities have no difference.  A NaN's takes it into the sum.
    const A scale = larger == smaller ? A{1}
                    : kLibraryExp     ? std::exp(smaller - larger)
                                      : Exp(smaller - larger);
    return {larger, b_is_larger ? b.sum + a.sum * scale : a.sum + b.sum * scale};
  }
  // The sum becomes its reciprocal, or NaN if the maximum is not finite.
  HOST_DEVICE Value Finish(Value v) const {
    return {v.largest, A{1} / v.sum + (v.largest - v.largest)};
  }
};

// y = x - log sum exp x, in one pass over x and one over y.  F32 is summed in double, so that a
// result is exact to its last bits for any length (oneDNN 2.6 errs by sixty roundings).  For 16-bit
// types float is exact enough.
template <typename T>
struct LogSoftmaxRows
    : SoftmaxPass<std::conditional_t<sizeof(T) == 2, float, double>, /*kLibraryExp=*/true> {
  using A = std::conditional_t<sizeof(T) == 2, float, double>;
  using Value = MaxAndExpSum<A>;
  int64_t columns;
  const T* x;
  T* y;

  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    return {static_cast<A>(x[row * columns + column]), 1};
  }
  // The sum becomes its logarithm, or NaN if the maximum is not finite.
  HOST_DEVICE Value Finish(Value v) const {
    return {v.largest, std::log(v.sum) + (v.largest - v.largest)};
  }
  HOST_DEVICE void Apply(int64_t row, int64_t column, Value v) const {
    const int64_t i = row * columns + column;
    y[i] = static_cast<T>(static_cast<A>(x[i]) - v.largest - v.sum);
  }
};

}  // namespace gyre
