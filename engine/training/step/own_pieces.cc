#include "engine/training/step/own_pieces.h"

#include <algorithm>

namespace gyre {

absl::Status SumOwnPieces(std::string_view what, const NetPlan& net, ProcessGroup& communication,
                          std::span<double> numbers) {
  const RunShape& shape = net.spec.shape;
  const int64_t pieces = std::max<int64_t>(net.pieces.count, 1);
  const int64_t of_piece = static_cast<int64_t>(numbers.size()) / pieces;
  std::vector<bool> is_own(static_cast<size_t>(pieces));
  for (int b = 0; b < static_cast<int>(net.order.buckets.size()); ++b) {
    const ElementRange part =
        shape.shard_optimizer ? UpdatedShard(net, b)
                              : EqualPart(net.order.buckets[b].elements, shape.ranks, shape.rank);
    for (const ElementRange& own : PiecesIn(net.order, net.pieces, b, part)) {
      std::fill(is_own.begin() + own.begin, is_own.begin() + own.end, true);
    }
  }
  for (int64_t i = 0; i < static_cast<int64_t>(numbers.size()); ++i) {
    if (!is_own[i / of_piece]) numbers[i] = 0;
  }
  return communication.Sum(what, numbers);
}

absl::Status SumOwnChanges(const NetPlan& net, ProcessGroup& communication, Stream& stream,
                           std::byte* norms) {
  std::vector<double> changes(2 * net.pieces.count);
  const size_t bytes = changes.size() * sizeof(double);
  RETURN_IF_ERROR(stream.Copy(changes.data(), norms, bytes));
  RETURN_IF_ERROR(stream.Synchronize());
  RETURN_IF_ERROR(SumOwnPieces("norms of changes", net, communication, changes));
  RETURN_IF_ERROR(stream.Copy(norms, changes.data(), bytes));
  return stream.Synchronize();
}

}  // namespace gyre
