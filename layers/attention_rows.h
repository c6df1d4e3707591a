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

// Scores, in place, become exp(score - the largest that the row sees), and 0 where it sees none. As
// the largest a NaN or +inf makes what the row sees NaN.
template <typename A, bool kHasLengths>
struct ExpOfSeen {
  using Value = A;
  Visible<kHasLengths> visible;
  int64_t stride;
  A scale;
  A* scores;

  HOST_DEVICE A Identity() const { return -static_cast<A>(INFINITY); }
  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    const A score = scale * scores[row * stride + column];
    return column < visible(row) ? score : Identity();
  }
  HOST_DEVICE A Combine(A a, A b) const { return a < b || b != b ? b : a; }
  HOST_DEVICE A Finish(A v) const { return v; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, A largest) const {
    A& at = scores[row * stride + column];
    const A exp = Exp(scale * at - largest) + (largest - largest);
    at = column < visible(row) ? exp : A{0};
  }
};

// Which, in place, become probabilities: a row is divided by its sum.
template <typename A, bool kHasLengths>
struct ShareOfSeen : Sum<A> {
  Visible<kHasLengths> visible;
  int64_t stride;
  A* exps;

  HOST_DEVICE A Load(int64_t row, int64_t column) const { return exps[row * stride + column]; }
  HOST_DEVICE A Finish(A sum) const { return 1 / sum; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, A factor) const {
    A& at = exps[row * stride + column];
    const A share = at * factor;
    at = column < visible(row) ? share : A{0};
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
      RaiseFault(fault, layer, n);
    }
  }
};

}  // namespace gyre
