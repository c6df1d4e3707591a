// trust_ratio.h: the steps of optimizers that scale a parameter's change by the ratio of its norm
// to the change's.  For optimizers alone.
#pragma once

#include <cmath>
#include <vector>

#include "engine/training/optimizers/fused_update.h"

namespace gyre {

// The row's sum of the squares of value[i] and change(i) of the view's elements i, of which there
// are `count`.  Cells before and after them count as 0, so that all cuts add in one order.
template <typename T, typename Change>
struct SquaresOfPieces {
  using Value = PieceSquares;
  const T* value;
  Change change;
  int64_t before, columns, count;
  PieceSquares* pieces;
  HOST_DEVICE PieceSquares Identity() const { return {0, 0}; }
  HOST_DEVICE PieceSquares Combine(PieceSquares a, PieceSquares b) const {
    return {a.value + b.value, a.change + b.change};
  }
  HOST_DEVICE PieceSquares Load(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column - before;
    if (i < 0 || i >= count) return {0, 0};
    const double v = value[i], c = change(i);
    return {v * v, c * c};
  }
  HOST_DEVICE void Store(int64_t row, PieceSquares squares) const { pieces[row] = squares; }
};

// Measures the pieces of each parameter.  `change(parameter)` returns the functor that computes the
// change of one of its elements.  Enqueues.
template <typename S, typename MakeChange>
absl::Status MeasurePieces(Stream& stream, std::span<const ParameterViews> parameters,
                           const MakeChange& change) {
  using T = AccumulateType<S>;
  for (const ParameterViews& p : parameters) {
    const ParameterNorms& norms = p.norms;
    const int64_t count = p.value.elements();
    if (count == 0) continue;
    RETURN_IF_ERROR(ForEachRow(
        stream, CeilDiv(norms.before + count, norms.columns), norms.columns,
        SquaresOfPieces<T, decltype(change(p))>{Updated<S>(p).value, change(p), norms.before,
                                                norms.columns, count, norms.own}));
  }
  return absl::OkStatus();
}

// A parameter's ratio by the squares of its pieces.  trust(value norm, change norm) returns it
// where neither is 0.  Otherwise, and where the parameter does not decay, it is 1: biases and the
// scales of norms move as without a ratio.
template <typename Trust>
struct RatioOfPieces {
  Trust trust;
  const PieceSquares* pieces;
  int64_t count;
  bool decays;
  double* ratio;
  HOST_DEVICE void operator()(int64_t) const {
    PieceSquares sum = {0, 0};
    for (int64_t i = 0; i < count; ++i) {
      sum.value += pieces[i].value;
      sum.change += pieces[i].change;
    }
    *ratio = decays && sum.value > 0 && sum.change > 0
                 ? trust(std::sqrt(sum.value), std::sqrt(sum.change))
                 : 1;
  }
};

// Sets each parameter's ratio.  Enqueues.
template <typename MakeTrust>
absl::Status SetRatios(Stream& stream, std::span<const ParameterViews> parameters,
                       const MakeTrust& trust) {
  std::vector<FusedLoop<RatioOfPieces<decltype(trust(parameters[0]))>>> ratios;
  for (const ParameterViews& p : parameters) {
    ratios.push_back(
        {1, {trust(p), p.norms.all, p.norms.count, p.decay_multiplier != 0, p.norms.ratio}});
  }
  return ForEachPart(stream, std::move(ratios));
}

}  // namespace gyre
