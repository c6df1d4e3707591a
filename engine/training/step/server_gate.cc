#include "engine/training/step/server_gate.h"

#include <algorithm>

#include "distributed/collectives/algorithms/direct_ranges.h"

namespace gyre {

ServerGate::ServerGate(const Model& model, const Optimizer& optimizer, Stream& stream,
                       ParameterServer& server)
    : model_(model), optimizer_(optimizer), stream_(stream), server_(server) {
  const RunShape& shape = model.plan().options.shape;
  loss_scale_.scale = shape.loss_scale.initial;
  gate_ = {.clip_norm = shape.clip_norm,
           .loss_scale = shape.loss_scale.dynamic() ? &loss_scale_ : nullptr,
           .growth_interval = shape.loss_scale.growth_interval};
  block_.loss_scale = shape.loss_scale.initial;
}

absl::StatusOr<std::unique_ptr<ServerGate>> ServerGate::Create(const Model& model,
                                                               const Optimizer& optimizer,
                                                               Device& device, Stream& stream,
                                                               ParameterServer& server) {
  std::unique_ptr<ServerGate> gate(new ServerGate(model, optimizer, stream, server));
  const RunShape& shape = model.plan().options.shape;
  const GradientOrder& order = model.train().plan().order;
  gate->pieces_.resize(shape.ranks);
  gate->squares_of_.resize(order.buckets.size());
  std::vector<ElementRange> ranges;
  for (size_t b = 0; b < order.buckets.size(); ++b) {
    const PlannedBucket& bucket = order.buckets[b];
    const std::vector<ElementRange> all = shape.MeasuredRanges(bucket.elements, bucket.dtype);
    gate->squares_of_[b].resize(all.size());
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const ElementRange part = bucket.parts[rank];
      int64_t own = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].begin < part.begin || all[i].end > part.end || part.count() == 0) continue;
        gate->pieces_[rank].push_back({static_cast<int>(b), static_cast<int>(i)});
        if (rank != shape.rank) continue;
        ranges.push_back(all[i]);
        ++own;
      }
      if (rank == shape.rank) gate->own_.push_back(own);
    }
  }
  for (const auto& pieces : gate->pieces_) gate->of_ranks_.emplace_back(pieces.size());
  const auto allocate = [&](Buffer& buffer, MemoryKind kind, size_t bytes) -> absl::Status {
    ASSIGN_OR_RETURN(buffer, Buffer::Allocate(device, kind, bytes));
    return absl::OkStatus();
  };
  const size_t bytes = ranges.size() * sizeof(double);
  RETURN_IF_ERROR(allocate(gate->ranges_, MemoryKind::kDevice, ranges.size() * sizeof(ranges[0])));
  RETURN_IF_ERROR(allocate(gate->lanes_, MemoryKind::kDevice, kSquareLanes * bytes));
  RETURN_IF_ERROR(allocate(gate->squares_, MemoryKind::kDevice, bytes));
  RETURN_IF_ERROR(allocate(gate->scratch_, MemoryKind::kDevice, kSumSquaresScratchBytes));
  RETURN_IF_ERROR(allocate(gate->sums_, MemoryKind::kPinnedHost, order.buckets.size() * 8));
  RETURN_IF_ERROR(stream.Copy(gate->ranges_.data(), ranges.data(), gate->ranges_.bytes()));
  RETURN_IF_ERROR(stream.Synchronize());
  return gate;
}

bool ServerGate::diverged() const {
  if (block_.gradients.bad_bucket < 0) return false;
  return gate_.loss_scale == nullptr || loss_scale_.scale < kLeastLossScale;
}

absl::Status ServerGate::Pass(int64_t step) {
  RETURN_IF_ERROR(server_.AwaitSums());
  RETURN_IF_ERROR(Measure());
  RETURN_IF_ERROR(TellAll());
  block_.position.step = static_cast<uint64_t>(step);
  update_ = {.groups = groups_};
  optimizer_.Prepare(block_.position.step, update_);
  PassGateOnHost(gate_, sums(), static_cast<int>(own_.size()), &update_, &block_);
  return absl::OkStatus();
}

// Measures the ranges that this rank owns.
absl::Status ServerGate::Measure() {
  const Net& net = model_.train();
  const int rank = model_.plan().options.shape.rank;
  const bool whole = model_.plan().options.shape.workers() == 1;
  const auto* ranges = reinterpret_cast<const ElementRange*>(ranges_.data());
  auto* lanes = reinterpret_cast<double*>(lanes_.data());
  auto* squares = reinterpret_cast<double*>(squares_.data());
  for (size_t b = 0; b < own_.size(); ++b) {
    const int64_t count = own_[b];
    if (count == 0) continue;
    const int bucket = static_cast<int>(b);
    const Tensor& sum = server_.sum(bucket);
    if (whole) {  // as one rank alone measures it
      RETURN_IF_ERROR(SumSquares(stream_, sum, scratch_.data(), squares));
    } else {
      RETURN_IF_ERROR(SumSquaresOfRanges(stream_, sum, UpdatedShard(net.plan(), bucket).begin,
                                         ranges, count, lanes, squares));
    }
    ranges += count;
    lanes += count * kSquareLanes;
    squares += count;
  }
  RETURN_IF_ERROR(stream_.Copy(of_ranks_[rank].data(), squares_.data(), squares_.bytes()));
  return stream_.Synchronize();
}

absl::Status ServerGate::TellAll() {
  RETURN_IF_ERROR(server_.Tell(
      [this](int rank) { return std::as_writable_bytes(std::span(of_ranks_[rank])); }));
  const RunShape& shape = model_.plan().options.shape;
  const GradientOrder& order = model_.train().plan().order;
  for (size_t rank = 0; rank < pieces_.size(); ++rank) {
    for (size_t i = 0; i < pieces_[rank].size(); ++i) {
      const auto& [bucket, number] = pieces_[rank][i];
      squares_of_[bucket][number] = of_ranks_[rank][i];
    }
  }
  auto* const sums = reinterpret_cast<double*>(sums_.data());
  for (size_t b = 0; b < squares_of_.size(); ++b) {
    const std::vector<double>& squares = squares_of_[b];
    sums[b] = shape.workers() == 1 ? squares.front()
                                   : AddDirectRanges(order.buckets[b].elements,
                                                     SizeOf(shape.WireType(order.buckets[b].dtype)),
                                                     shape.workers(), squares);
  }
  return absl::OkStatus();
}

}  // namespace gyre
