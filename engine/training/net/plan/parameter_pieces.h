// parameter_pieces.h: the pieces in which whole parameters are measured
// (ParameterNorms).  They follow from the number of workers alone, so that every
// way to cut an update has the same bits: a shard, an owner's part and a tile hold whole pieces.
#pragma once

#include <vector>

#include "engine/training/net/plan/gradient_order.h"
#include "engine/training/run_shape.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// A range of a parameter within one EqualPart of its bucket, which is cut from its beginning.
// Cells, pieces and `before` are ParameterNorms'.
struct MeasuredPart : ParameterRange {
  int64_t before = 0, columns = 0;
  int64_t piece = 0;  // number of the first one, of all parameters
  int gradient = 0;   // index into the order's
};

struct ParameterPieces {
  std::vector<std::vector<MeasuredPart>> parts = {};  // by bucket, in order
  std::vector<ElementRange> of_gradient = {};         // by gradient: its parameter's pieces
  int64_t count = 0;                                  // of all
};

// Without parts unless the shape measures.
ParameterPieces CutIntoPieces(const GradientOrder& order, const RunShape& shape);

// The elements of a piece that is not a part's last.
int64_t PieceElements(const RunShape& shape, DType dtype);

// The ranges of parameters in a range of a bucket, each of one of its parts if it has parts.  What
// is measured must cut no piece.
std::vector<MeasuredPart> PartsIn(const GradientOrder& order, const ParameterPieces& pieces,
                                  int bucket, ElementRange range);

// The numbers of the pieces that a range of a bucket has, which cuts none.
std::vector<ElementRange> PiecesIn(const GradientOrder& order, const ParameterPieces& pieces,
                                   int bucket, ElementRange range);

// Where a part is measured and finds its parameter's norms, in `memory` of NormsBytes.
ParameterNorms NormsOf(const ParameterPieces& pieces, const MeasuredPart& part, std::byte* memory);

// In `memory` of NormsBytes, by piece: the squares of gradients for the log.
double* LoggedSquares(const ParameterPieces& pieces, std::byte* memory);

// Device memory for all PieceSquares, a ratio of each gradient's parameter, and what is logged.
inline size_t NormsBytes(const ParameterPieces& pieces) {
  return static_cast<size_t>(pieces.count) * (sizeof(PieceSquares) + sizeof(double)) +
         pieces.of_gradient.size() * sizeof(double);
}

}  // namespace gyre
