#include "distributed/collectives/algorithms/direct_ranges.h"

namespace gyre {

std::vector<ElementRange> DirectRanges(int64_t elements, size_t element_bytes, int ranks) {
  const int64_t length = DirectSegmentElements(element_bytes);
  std::vector<ElementRange> segments;
  for (int rank = 0; rank < ranks; ++rank) {
    const ElementRange part = EqualPart(elements, ranks, rank);
    for (int64_t i = 0; i * length < part.count(); ++i) {
      segments.push_back(FixedPart(part, length, i));
    }
  }
  return segments;
}

double AddDirectRanges(int64_t elements, size_t element_bytes, int ranks,
                       std::span<const double> squares) {
  const int64_t length = DirectSegmentElements(element_bytes);
  double sum = 0;
  auto next = squares.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    double of_rank = 0;
    for (int64_t left = EqualPart(elements, ranks, rank).count(); left > 0; left -= length) {
      of_rank += *next++;
    }
    sum += of_rank;
  }
  return sum;
}

}  // namespace gyre
