// attention_rows.h: functors of the row loops between attention's products, for parallel.h.  They
// are apart from the layer so that a test can check the laws of the reduction.
#pragma once

#include <cmath>

#include "engine/runtime/elementary.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/softmax_pass.h"
#include "layers/interface/fault.h"

namespace gyre {

// A row of a tile sees the keys before visible(row).  Rows are numbered through the tile's
// matrices, sample by sample and head by head.
template <bool kHasLengths>
struct Visible {
  int64_t rows, heads;  // of the tile
  int64_t first_row, queries, keys;
  int64_t causal;          // 1 or 0: a branch on it would keep loops from being vectorised
  const int32_t* lengths;  // from the tile's first sample on

  // 32 bits hold the number of a row, since a group has at most 2^28 (attention_plan.cc).  A
  // division of 64 bits takes four times as long, and branches.
  HOST_DEVICE int64_t MatrixOf(int64_t row) const {
    return static_cast<uint32_t>(row) / static_cast<uint32_t>(rows);
  }
  HOST_DEVICE int64_t RowInMatrix(int64_t row) const {
    return static_cast<uint32_t>(row) % static_cast<uint32_t>(rows);
  }

  HOST_DEVICE int64_t operator()(int64_t row) const {
    const int64_t t = first_row + RowInMatrix(row);
    const int64_t seen = causal * (t + 1) + (1 - causal) * keys;
    if constexpr (kHasLengths) {
      const int64_t given = lengths[MatrixOf(row) / heads];
      const int64_t length = given * ((given >= 0) & (given <= keys));
      return length < seen ? length : seen;
    }
    return seen;
  }

  // The row's index among all rows of these matrices.
  HOST_DEVICE int64_t Whole(int64_t row) const {
    return MatrixOf(row) * queries + first_row + RowInMatrix(row);
  }
};

// The scores of a tile and, by Whole(row), the two numbers of a row's softmax.  m is the largest
// score that the row sees, and 1 / f is the sum of exp(score - m) over these scores.  A probability
// is exp(score - m) f.
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

// A loop calls Load once for each score.  Load replaces the score by its exponential, from which
// Probabilities goes on.  If the largest score is NaN or infinite, the row's probabilities are NaN.
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

// Turns scores (kAreExps: the exponentials of FactorOfSeen) into probabilities, 0 for keys that the
// row does not see.  `to` has the layout of the scores, and may be the scores.
template <bool kAreExps, typename A, bool kHasLengths, typename O>
struct Probabilities {
  SeenScores<A, kHasLengths> seen;
  O* to;

  HOST_DEVICE O Load(int64_t row, int64_t column) const {
    const A exp = kAreExps ? seen.scores[row * seen.stride + column] : seen.ExpAt(row, column);
    const A share = exp * seen.factor[seen.visible.Whole(row)];
    return static_cast<O>(column < seen.visible(row) ? share : A{0});
  }
  HOST_DEVICE void Store(int64_t row, int64_t column, O v) const {
    to[row * seen.stride + column] = v;
  }
};

// The three functors above in one pass, for a GPU.  It rescales a running sum of exponentials when
// the largest score grows.  The sum becomes the factor.
template <typename A, bool kHasLengths, typename O>
struct SoftmaxOfSeen : SoftmaxPass<A> {
  using Value = MaxAndExpSum<A>;
  SeenScores<A, kHasLengths> seen;
  O* to;

  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    const A score = seen.scale * seen.scores[row * seen.stride + column];
    return column < seen.visible(row) ? Value{score, 1} : this->Identity();
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

// Computes dS from probabilities and dP.  dS may be dP.  Keys that a row does not see may have any
// values.
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

// Element strides from row to row, head to head and sample to sample.
struct HeadStrides {
  int64_t row, head, sample;
};

// Columns that one call copies, so that it computes the row once for all of them.
constexpr int64_t kSpan = 8;

// Copies `width` columns of each head, `rows` rows and each sample, between two layouts.
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
    const From* const source = from + At(of_from, sample, row, head) + begin;
    To* const target = to + At(of_to, sample, row, head) + begin;
    if (begin + kSpan <= width) {
      To span[kSpan];  // loaded whole, for a GPU, before the first is stored
      for (int64_t c = 0; c < kSpan; ++c) span[c] = static_cast<To>(source[c]);
      for (int64_t c = 0; c < kSpan; ++c) target[c] = span[c];
    } else {
      for (int64_t c = 0; c < width - begin; ++c) target[c] = static_cast<To>(source[c]);
    }
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
