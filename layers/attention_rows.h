// attention_rows.h: what attention does to rows between its products.  Functors for the loops of
// parallel.h, apart from the layer so that a test can hold the reduction to its laws.
#pragma once

#include <cmath>

#include "engine/runtime/elementary.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/fault.h"

namespace gyre {

// Which keys a row of a block sees: those before Keys(row).  Rows are counted through the block's
// matrices, sample by sample and head by head.
template <bool kHasLengths>
struct Visible {
  int64_t rows, heads;  // of the block
  int64_t first_row, queries, keys;
  bool causal;
  const int32_t* lengths;  // from the block's first sample on

  HOST_DEVICE int64_t operator()(int64_t row) const {
    const int64_t t = first_row + row % rows;
    int64_t seen = causal ? t + 1 : keys;
    if constexpr (kHasLengths) {
      int64_t length = lengths[row / rows / heads];
      if (length < 0 || length > keys) length = 0;
      if (length < seen) seen = length;
      if (queries == keys && t >= length) seen = 0;
    }
    return seen;
  }
};

// Of some scores of a row: the largest, and the sum of exp(s - largest).
template <typename A>
struct MaxAndSum {
  A max, sum;
};

// Scores, in place, become probabilities.  As the sum, also the maximum of a NaN or +inf makes its
// row NaN.  Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
template <typename A, bool kHasLengths>
struct SoftmaxOfSeen {
  using Value = MaxAndSum<A>;
  Visible<kHasLengths> visible;
  int64_t stride;
  A scale;
  A* scores;

  HOST_DEVICE Value Identity() const { return {-static_cast<A>(INFINITY), 0}; }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    const bool seen = column < visible(row);
    const A score = scale * scores[row * stride + column];
    return {seen ? score : -static_cast<A>(INFINITY), seen ? A{1} : A{0}};
  }
  HOST_DEVICE Value Combine(Value a, Value b) const {
    const bool b_is_larger = a.max < b.max;
    const A larger = b_is_larger ? b.max : a.max, smaller = b_is_larger ? a.max : b.max;
    // Equal infinities have no difference.
    const A shrink = larger == smaller ? A{1} : Exp(smaller - larger);
    return {larger, b_is_larger ? b.sum + a.sum * shrink : a.sum + b.sum * shrink};
  }
  // The sum becomes its inverse.
  HOST_DEVICE Value Finish(Value v) const { return {v.max, 1 / v.sum + (v.max - v.max)}; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, Value v) const {
    A& at = scores[row * stride + column];
    const A probability = Exp(scale * at - v.max) * v.sum;
    at = column < visible(row) ? probability : A{0};
  }
};

// dP, in place, becomes dS.
template <typename A>
struct SoftmaxGradient : Sum<A> {
  int64_t stride;
  A scale;
  const A* p;
  A* dp;

  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    return p[row * stride + column] * dp[row * stride + column];
  }
  HOST_DEVICE A Finish(A v) const { return v; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, A v) const {
    const int64_t at = row * stride + column;
    dp[at] = scale * p[at] * (dp[at] - v);
  }
};

// Where rows of heads lie: element strides from row to row and from sample to sample.
struct RowStrides {
  int64_t row, sample;
};

// Columns that one call copies: what finds the row serves them all.
constexpr int64_t kSpan = 8;

// `columns` of each of `rows` rows of each sample, from one place to another.
template <typename From, typename To>
struct CopyRows {
  int64_t rows, columns, spans;
  RowStrides of_from, of_to;
  const From* from;
  To* to;
  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t r = i / spans, begin = i % spans * kSpan, sample = r / rows, row = r % rows;
    const int64_t end = begin + kSpan < columns ? begin + kSpan : columns;
    const From* const source = from + sample * of_from.sample + row * of_from.row;
    To* const target = to + sample * of_to.sample + row * of_to.row;
    for (int64_t c = begin; c < end; ++c) target[c] = static_cast<To>(source[c]);
  }
};

struct CheckLengths {
  int64_t keys;
  const int32_t* lengths;
  Fault* fault;
  int layer;
  HOST_DEVICE void operator()(int64_t n) const {
    if (lengths[n] < 0 || lengths[n] > keys) {
      RaiseFault(fault, layer, FaultCode::kIndexOutOfRange, n);
    }
  }
};

}  // namespace gyre
