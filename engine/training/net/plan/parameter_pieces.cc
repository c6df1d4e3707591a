#include <algorithm>

#include "distributed/collectives/algorithms/direct_ranges.h"
#include "engine/runtime/math.h"
#include "engine/training/net/plan/gradient_order.h"

namespace gyre {
namespace {

int64_t PiecesOf(const MeasuredPart& part) {
  return CeilDiv(part.before + part.count, part.columns);
}

}  // namespace

int64_t PieceElements(const RunShape& shape, DType dtype) {
  return DirectSegmentElements(SizeOf(shape.WireType(dtype)));
}

ParameterPieces CutIntoPieces(const GradientOrder& order, const RunShape& shape) {
  ParameterPieces pieces;
  if (!shape.measures()) return pieces;
  pieces.of_gradient.resize(order.gradients.size());
  for (size_t b = 0; b < order.buckets.size(); ++b) {
    const PlannedBucket& bucket = order.buckets[b];
    const int64_t length = PieceElements(shape, bucket.dtype);
    std::vector<MeasuredPart>& parts = pieces.parts.emplace_back();
    int g = bucket.first;
    for (int worker = 0; worker < shape.workers(); ++worker) {
      const ElementRange of_worker = EqualPart(bucket.elements, shape.workers(), worker);
      for (const ParameterRange& range : RangesIn(order, static_cast<int>(b), of_worker)) {
        while (order.gradients[g].parameter != range.parameter) ++g;
        MeasuredPart part = {range};
        part.before = (range.at - of_worker.begin) % length;
        part.columns = length;
        if (part.before + range.count <= length) {  // one piece
          part.before = 0;
          part.columns = range.count;
        }
        part.piece = pieces.count;
        part.gradient = g;
        pieces.count += PiecesOf(part);
        ElementRange& all = pieces.of_gradient[g];
        if (all.count() == 0) all.begin = part.piece;
        all.end = pieces.count;
        parts.push_back(part);
      }
    }
  }
  return pieces;
}

std::vector<MeasuredPart> PartsIn(const GradientOrder& order, const ParameterPieces& pieces,
                                  int bucket, ElementRange range) {
  std::vector<MeasuredPart> parts;
  if (pieces.parts.empty()) {
    for (const ParameterRange& of : RangesIn(order, bucket, range)) parts.push_back({of});
    return parts;
  }
  for (MeasuredPart part : pieces.parts[bucket]) {
    const int64_t begin = std::max(part.at, range.begin);
    const int64_t end = std::min(part.at + part.count, range.end);
    if (begin >= end) continue;
    const int64_t cell = part.before + begin - part.at;
    part.piece += cell / part.columns;
    part.before = cell % part.columns;
    part.begin += begin - part.at;
    part.at = begin;
    part.count = end - begin;
    parts.push_back(part);
  }
  return parts;
}

std::vector<ElementRange> PiecesIn(const GradientOrder& order, const ParameterPieces& pieces,
                                   int bucket, ElementRange range) {
  std::vector<ElementRange> numbers;
  for (const MeasuredPart& part : PartsIn(order, pieces, bucket, range)) {
    numbers.push_back({part.piece, part.piece + PiecesOf(part)});
  }
  return numbers;
}

double* LoggedSquares(const ParameterPieces& pieces, std::byte* memory) {
  auto* const squares = reinterpret_cast<PieceSquares*>(memory);
  return reinterpret_cast<double*>(squares + pieces.count) + pieces.of_gradient.size();
}

ParameterNorms NormsOf(const ParameterPieces& pieces, const MeasuredPart& part, std::byte* memory) {
  if (pieces.parts.empty()) return {};
  auto* const squares = reinterpret_cast<PieceSquares*>(memory);
  auto* const ratios = reinterpret_cast<double*>(squares + pieces.count);
  const ElementRange all = pieces.of_gradient[part.gradient];
  return {.before = part.before,
          .columns = part.columns,
          .own = squares + part.piece,
          .all = squares + all.begin,
          .count = all.count(),
          .ratio = ratios + part.gradient,
          .logged = LoggedSquares(pieces, memory) + part.piece};
}

}  // namespace gyre
