// trust_ratio.h: measures whole parameters in pieces, and scales a parameter's change by the ratio
// of its norm to the change's.  For optimizers alone.
#pragma once

#include <cmath>
#include <vector>

#include "engine/training/optimizers/fused_update.h"

namespace gyre {

// The row's sum of squares(i) of the view's elements i, of which there are `count`.  Cells before
// and after them count as 0, so that all cuts add in one order.
template <typename V, typename Squares>
struct SumOfPieces : SumReduction<V> {
  Squares squares;
  int64_t before, columns, count;
  V* pieces;
  HOST_DEVICE V Load(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column - before;
    return i < 0 || i >= count ? V{} : squares(i);
  }
  HOST_DEVICE void Store(int64_t row, V sum) const { pieces[row] = sum; }
};

// Sets the view's pieces.  Enqueues.
template <typename V, typename Squares>
absl::Status SumPieces(Stream& stream, const ParameterViews& view, const Squares& squares,
                       V* pieces) {
  const int64_t before = view.norms.before, columns = view.norms.columns;
  const int64_t count = view.gradient.elements();
  if (count == 0) return absl::OkStatus();
  return ForEachRow(stream, CeilDiv(before + count, columns), columns,
                    SumOfPieces<V, Squares>{{}, squares, before, columns, count, pieces});
}

template <typename T, typename Change>
struct SquaresOfChange {
  const T* value;
  Change change;
  HOST_DEVICE PieceSquares operator()(int64_t i) const {
    const double v = value[i], c = change(i);
    return {v * v, c * c};
  }
};

// Measures each parameter.  `change.operator()<S>(parameter)` returns the functor that computes the
// change of an element of a parameter that is stored as S.  Enqueues.
template <typename MakeChange>
absl::Status MeasureChanges(Stream& stream, std::span<const ParameterViews> parameters,
                            const MakeChange& change) {
  for (const ParameterViews& p : parameters) {
    RETURN_IF_ERROR(VisitReal(p.value.dtype, [&]<typename S>() {
      const auto change_of = change.template operator()<S>(p);
      using Squares = SquaresOfChange<AccumulateType<S>, std::decay_t<decltype(change_of)>>;
      return SumPieces(stream, p, Squares{Updated<S>(p).value, change_of}, p.norms.own);
    }));
  }
  return absl::OkStatus();
}

// A parameter's ratio by the squares of its pieces, with w and c as norms of value and change:
//   coefficient * w / (c + decay * w), or 1 if one is 0, or the parameter does not decay.
// So biases and the scales of norms move as without a ratio.
struct RatioOfPieces {
  double coefficient, decay;
  const PieceSquares* pieces;
  int64_t count;
  bool decays;
  double* ratio;
  HOST_DEVICE void operator()(int64_t) const {
    PieceSquares sum = {0, 0};
    for (int64_t i = 0; i < count; ++i) sum = sum + pieces[i];
    const double value = std::sqrt(sum.value), change = std::sqrt(sum.change);
    *ratio = decays && sum.value > 0 && sum.change > 0
                 ? coefficient * value / (change + decay * value)
                 : 1;
  }
};

// Sets each parameter's ratio.  The decay is what the measured changes leave out.  Enqueues.
inline absl::Status SetRatios(Stream& stream, std::span<const ParameterViews> parameters,
                              double coefficient, double decay) {
  std::vector<FusedLoop<RatioOfPieces>> ratios;
  for (const ParameterViews& p : parameters) {
    const double own_decay = decay * p.decay_multiplier;
    ratios.push_back({1,
                      {coefficient, own_decay, p.norms.all, p.norms.count, p.decay_multiplier != 0,
                       p.norms.ratio}});
  }
  return ForEachPart(stream, std::move(ratios));
}

}  // namespace gyre
