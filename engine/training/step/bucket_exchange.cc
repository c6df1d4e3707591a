#include "engine/training/step/bucket_exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/training/step/gradient_sync.h"
#include "engine/training/step/server_sync.h"

namespace gyre {
namespace {

// A longer list of names tells the reader of an error no more.
constexpr size_t kLongestNames = 60;

std::string Short(const std::vector<std::string>& names) {
  std::string all = absl::StrJoin(names, ", ");
  if (all.size() <= kLongestNames || names.size() < 3) return all;
  return absl::StrCat(names.front(), " to ", names.back(), ", ", names.size(), " in all");
}

absl::StatusOr<std::unique_ptr<BucketExchange>> NewSync(const Model& model, const Net& net,
                                                        Device& device, Stream& compute,
                                                        ProcessGroup& communication,
                                                        TakeIn take_in) {
  std::vector<GradientSync::SyncedBucket> buckets;
  for (int b = 0; b < static_cast<int>(net.plan().order.buckets.size()); ++b) {
    if (!net.plan().order.buckets[b].trains()) {
      buckets.push_back({.gradients = {nullptr, Shape({0}), net.plan().order.buckets[b].dtype}});
      continue;
    }
    const TouchedTable* const table = TableOf(net.plan(), b);
    buckets.push_back({.gradients = net.bucket(b, net.plan().trace.buckets[b].leaves),
                       .summed = net.sent(b) ? net.summed(b) : Tensor{},
                       .received = net.summed(b),
                       .parameters = Short(NamesIn(net.plan().order, model.plan().parameters, b)),
                       .table = table,
                       .rows = table != nullptr ? net.table(*table) : Net::TableTensors{}});
  }
  const GradientSync::Halves halves = !model.plan().options.shape.shard_optimizer
                                          ? GradientSync::Halves::kNone
                                      : model.one_copy() ? GradientSync::Halves::kOneCopy
                                                         : GradientSync::Halves::kGather;
  return GradientSync::Create(device, compute, communication, buckets, net.sums(), halves,
                              std::move(take_in));
}

}  // namespace

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

absl::StatusOr<std::unique_ptr<BucketExchange>> NewExchange(
    const Model& model, int player, const Optimizer& optimizer, RateOfStep learning_rate,
    Device& device, Stream& compute, ProcessGroup& communication, TakeIn take_in) {
  if (model.plan().options.shape.server) {
    return ServerSync::Create(model, optimizer, std::move(learning_rate), device, compute,
                              communication, std::move(take_in));
  }
  if (communication.size() == 1) return std::make_unique<BucketExchange>();
  return NewSync(model, model.turn(player).net(), device, compute, communication,
                 std::move(take_in));
}

}  // namespace gyre
