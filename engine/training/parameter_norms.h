// parameter_norms.h: where an optimizer finds the norms of a whole parameter.  Buckets, shards and
// tiles cut parameters.  So a parameter is measured in pieces that do not depend on how it is cut,
// and whoever updates an element adds up all pieces, in one order.
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"

namespace gyre {

// Sums of squares over the elements of a piece.
struct PieceSquares {
  using Component = double;
  double value, change;  // of the parameter, and of what moves it
};

// Of a parameter's view.  All pointers are to device memory.
struct ParameterNorms {
  // To measure.  The view's elements are cells of rows of `columns` cells, one after another, from
  // cell `before` on.  Each row is a piece, and `own` has the first row's squares.
  int64_t before = 0, columns = 0;
  PieceSquares* own = nullptr;
  // To update: all pieces of the parameter, and a number in which their result is kept.
  const PieceSquares* all = nullptr;
  int64_t count = 0;
  double* ratio = nullptr;
  double* logged = nullptr;  // the first row's square of the gradient, for the log
};

}  // namespace gyre
