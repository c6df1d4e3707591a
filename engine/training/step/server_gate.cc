#include "engine/training/step/server_gate.h"

#include <algorithm>

#include "distributed/collectives/algorithms/direct_ranges.h"

namespace gyre {

ServerGate::ServerGate(const Model& model, const Optimizer& optimizer, Stream& stream,
                       ProcessGroup& communication, ParameterServer& server)
    : model_(model),
      optimizer_(optimizer),
      stream_(stream),
      communication_(communication),
      server_(server) {
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
                                                               ProcessGroup& communication,
                                                               ParameterServer& server) {
  std::unique_ptr<ServerGate> gate(new ServerGate(model, optimizer, stream, communication, server));
  const NetPlan& plan = model.train().plan();
  std::vector<ElementRange> ranges;
  for (int b = 0; b < static_cast<int>(plan.order.buckets.size()); ++b) {
    const PlannedBucket& bucket = plan.order.buckets[b];
    const ElementRange part = UpdatedShard(plan, b);
    MeasuredBucket& measured = gate->buckets_.emplace_back();
    measured.first = gate->all_.size();
    for (const ElementRange& range :
         plan.spec.shape.MeasuredRanges(bucket.elements, bucket.dtype)) {
      const size_t number = measured.first + measured.count++;
      if (range.begin < part.begin || range.end > part.end || part.count() == 0) continue;
      if (measured.count_own++ == 0) measured.first_own = number;
      ranges.push_back(range);
    }
    gate->all_.resize(measured.first + measured.count);
  }
  const auto allocate = [&](Buffer& buffer, MemoryKind kind, size_t bytes) -> absl::Status {
    ASSIGN_OR_RETURN(buffer, Buffer::Allocate(device, kind, bytes));
    return absl::OkStatus();
  };
  const size_t bytes = ranges.size() * sizeof(double);
  RETURN_IF_ERROR(allocate(gate->ranges_, MemoryKind::kDevice, ranges.size() * sizeof(ranges[0])));
  RETURN_IF_ERROR(allocate(gate->lanes_, MemoryKind::kDevice, kSquareLanes * bytes));
  RETURN_IF_ERROR(allocate(gate->squares_, MemoryKind::kDevice, bytes));
  RETURN_IF_ERROR(allocate(gate->scratch_, MemoryKind::kDevice, kSumSquaresScratchBytes));
  RETURN_IF_ERROR(allocate(gate->sums_, MemoryKind::kPinnedHost, gate->buckets_.size() * 8));
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
  RETURN_IF_ERROR(AddUp());
  block_.position.step = static_cast<uint64_t>(step);
  update_ = {.groups = groups_};
  optimizer_.Prepare(block_.position.step, update_);
  PassGateOnHost(gate_, sums(), static_cast<int>(buckets_.size()), &update_, &block_);
  return absl::OkStatus();
}

// Measures the ranges that this rank owns.  Others are zeros.
absl::Status ServerGate::Measure() {
  const bool whole = model_.plan().options.shape.workers() == 1;
  const auto* ranges = reinterpret_cast<const ElementRange*>(ranges_.data());
  auto* lanes = reinterpret_cast<double*>(lanes_.data());
  auto* squares = reinterpret_cast<double*>(squares_.data());
  std::ranges::fill(all_, 0);
  for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
    const auto count = static_cast<int64_t>(buckets_[b].count_own);
    if (count == 0) continue;
    const Tensor& sum = server_.sum(b);
    if (whole) {  // as one rank alone measures it
      RETURN_IF_ERROR(SumSquares(stream_, sum, scratch_.data(), squares));
    } else {
      RETURN_IF_ERROR(SumSquaresOfRanges(stream_, sum, UpdatedShard(model_.train().plan(), b).begin,
                                         ranges, count, lanes, squares));
    }
    RETURN_IF_ERROR(stream_.Copy(&all_[buckets_[b].first_own], squares, count * sizeof(double)));
    ranges += count;
    lanes += count * kSquareLanes;
    squares += count;
  }
  return stream_.Synchronize();
}

absl::Status ServerGate::AddUp() {
  RETURN_IF_ERROR(communication_.Sum("sums of squares of gradients", all_));
  const RunShape& shape = model_.plan().options.shape;
  const GradientOrder& order = model_.train().plan().order;
  auto* const sums = reinterpret_cast<double*>(sums_.data());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const auto squares = std::span(all_).subspan(buckets_[b].first, buckets_[b].count);
    sums[b] = shape.workers() == 1 ? squares.front()
                                   : AddDirectRanges(order.buckets[b].elements,
                                                     SizeOf(shape.WireType(order.buckets[b].dtype)),
                                                     shape.workers(), squares);
  }
  return absl::OkStatus();
}

}  // namespace gyre
