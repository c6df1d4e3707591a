// attention_rows.h: what attention does to rows between its products.  Functors for the loops of
// parallel.h, apart from the layer so that a test can hold the reduction to its laws.
#pragma once

#include <cmath>

#include "engine/runtime/elementary.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/max_and_exp_sum.h"
#include "layers/interface/fault.h"

namespace gyre {

// Which keys a row of a block sees: those before visible(row).  Rows are counted through the
// block's matrices, sample by sample and head by head.
template <bool kHasLengths>
struct Visible {
  int64_t rows, heads;  // of the block
  int64_t first_row, queries, keys;
  int64_t causal;          // 1 or 0: a branch on it would keep loops from being vectorised
  const int32_t* lengths;  // from the block's first sample on

  HOST_DEVICE int64_t operator()(int64_t row) const {
    const int64_t t = first_row + row % rows;
    const int64_t seen = causal * (t + 1) + (1 - causal) * keys;
    if constexpr (kHasLengths) {
      const int64_t given = lengths[row / rows / heads];
      const int64_t length = given * ((given >= 0) & (given <= keys));
      return length < seen ? length : seen;
    }
    return seen;
  }

  // The row's index among all rows of these matrices.
  HOST_DEVICE int64_t Whole(int64_t row) const {
    return row / rows * queries + first_row + row % rows;
  }
};

// The scores of a block and, by Whole(row), what the softmax of a row is made of.  With m the
// largest score that the row sees and f = 1 / the sum of exp(score - m) over what it sees, a
// probability is exp(score - m) f.
template <typename A, bool kHasLengths>
struct SeenScores {
  Visible<kHasLengths> visible;
  int64_t stride;
  A scale;
  A* scores;
  A* largest;
  A* factor;

  HOST_DEVICE A ExpAt(int64_t row, int64_t column) const {
    return Exp(scale * scores[row * stride + column] - largest[visible.Whole(row)]);
  }
};

template <typename A, bool kHasLengths>
struct LargestOfSeen {
  using Value = A;
  SeenScores<A, kHasLengths> seen;

  HOST_DEVICE A Identity() const { return -static_cast<A>(INFINITY); }
  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    const A score = seen.scale * seen.scores[row * seen.stride + column];
    return column < seen.visible(row) ? score : Identity();
  }
  HOST_DEVICE A Combine(A a, A b) const { return a < b || b != b ? b : a; }
  HOST_DEVICE void Store(int64_t row, A v) const { seen.largest[seen.visible.Whole(row)] = v; }
};

// Load, which a skeleton calls once for a score, leaves what it adds in the score's place: the
// first step to what Probabilities makes of it.  A largest that is NaN or infinite makes all that
// the row sees NaN.
template <typename A, bool kHasLengths>
struct FactorOfSeen : SumReduction<A> {
  SeenScores<A, kHasLengths> seen;

  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    const A exp = seen.ExpAt(row, column), share = column < seen.visible(row) ? exp : A{0};
    seen.scores[row * seen.stride + column] = share;
    return share;
  }
  HOST_DEVICE void Store(int64_t row, A sum) const {
    const int64_t whole = seen.visible.Whole(row);
    seen.factor[whole] = 1 / sum + (seen.largest[whole] - seen.largest[whole]);
  }
};

// Scores, or, if kAreExps, what FactorOfSeen made of them, become probabilities, and 0 where the
// row does not see.  to: laid out as the scores, or the scores.
template <bool kAreExps, typename A, bool kHasLengths, typename O>
struct Probabilities {
  SeenScores<A, kHasLengths> seen;
  O* to;

  HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    const A exp = kAreExps ? seen.scores[row * seen.stride + column] : seen.ExpAt(row, column);
    const A share = exp * seen.factor[seen.visible.Whole(row)];
    to[row * seen.stride + column] = static_cast<O>(column < seen.visible(row) ? share : A{0});
  }
};

// What the three above do, in one pass for a GPU: a running sum of exponentials, rescaled where the
// largest score grows.
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
template <typename A, bool kHasLengths, typename O>
struct SoftmaxOfSeen {
  using Value = MaxAndExpSum<A>;
  SeenScores<A, kHasLengths> seen;
  O* to;

  HOST_DEVICE Value Identity() const { return {-static_cast<A>(INFINITY), 0}; }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    const A score = seen.scale * seen.scores[row * seen.stride + column];
    return column < seen.visible(row) ? Value{score, 1} : Identity();
  }
  HOST_DEVICE Value Combine(Value a, Value b) const {
    const bool b_is_larger = a.largest < b.largest;
    const A larger = b_is_larger ? b.largest : a.largest;
    const A smaller = b_is_larger ? a.largest : b.largest;
    // Equal infinities have no difference.  A NaN's takes it into the sum.
    const A scale = larger == smaller ? A{1} : Exp(smaller - larger);
    return {larger, b_is_larger ? b.sum + a.sum * scale : a.sum + b.sum * scale};
  }
  // The sum becomes the factor, or NaN if the largest is not finite.
  HOST_DEVICE Value Finish(Value v) const {
    return {v.largest, 1 / v.sum + (v.largest - v.largest)};
  }
  HOST_DEVICE void Apply(int64_t row, int64_t column, Value v) const {
    const int64_t at = row * seen.stride + column;
    const A share = Exp(seen.scale * seen.scores[at] - v.largest) * v.sum;
    to[at] = static_cast<O>(column < seen.visible(row) ? share : A{0});
    if (column > 0) return;
    const int64_t whole = seen.visible.Whole(row);
    seen.largest[whole] = v.largest;
    seen.factor[whole] = v.sum;
  }
};

// Of probabilities and dP: dS, which may be in dP's place.  What a row does not see may be
// anything.
template <typename A, bool kHasLengths, typename O>
struct SoftmaxOfSeenGradient : SumReduction<A> {
  SeenScores<A, kHasLengths> seen;
  const O* probabilities;
  const A* dp;
  O* ds;

  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    const int64_t at = row * seen.stride + column;
    const A product = static_cast<A>(probabilities[at]) * dp[at];
    return column < seen.visible(row) ? product : A{0};
  }
  HOST_DEVICE A Finish(A v) const { return v; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, A v) const {
    const int64_t at = row * seen.stride + column;
    const A gradient = seen.scale * static_cast<A>(probabilities[at]) * (dp[at] - v);
    ds[at] = static_cast<O>(column < seen.visible(row) ? gradient : A{0});
  }
};

// Where rows of heads lie: element strides from row to row, head to head and sample to sample.
struct HeadStrides {
  int64_t row, head, sample;
};

// Columns that one call copies: what finds the row serves them all.
constexpr int64_t kSpan = 8;

// `width` columns of each head of each of `rows` rows of each sample, from one place to another.
template <typename From, typename To>
struct CopyHeads {
  int64_t rows, heads, width, spans;
  HeadStrides of_from, of_to;
  const From* from;
  To* to;
  HOST_DEVICE static int64_t At(const HeadStrides& of, int64_t sample, int64_t row, int64_t head) {
    return sample * of.sample + row * of.row + head * of.head;
  }
  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t h = i / spans, begin = i % spans * kSpan, head = h % heads;
    const int64_t row = h / heads % rows, sample = h / heads / rows;
    const int64_t end = begin + kSpan < width ? begin + kSpan : width;
    const From* const source = from + At(of_from, sample, row, head);
    To* const target = to + At(of_to, sample, row, head);
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
