#include "engine/training/step/server_norms.h"

#include <algorithm>

#include "distributed/collectives/algorithms/direct_ranges.h"
#include "engine/training/step/update_gate.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<ServerNorms>> ServerNorms::Create(const NetPlan& plan,
                                                                 Device& device, Stream& stream,
                                                                 ProcessGroup& communication,
                                                                 ParameterServer& server) {
  std::unique_ptr<ServerNorms> norms(new ServerNorms(plan, stream, communication, server));
  std::vector<ElementRange> ranges;
  for (int b = 0; b < static_cast<int>(plan.order.buckets.size()); ++b) {
    const PlannedBucket& bucket = plan.order.buckets[b];
    const ElementRange part = UpdatedShard(plan, b);
    MeasuredBucket& measured = norms->buckets_.emplace_back();
    measured.first = norms->all_.size();
    for (const ElementRange& range :
         plan.spec.shape.MeasuredRanges(bucket.elements, bucket.dtype)) {
      const size_t number = measured.first + measured.count++;
      if (range.begin < part.begin || range.end > part.end || part.count() == 0) continue;
      if (measured.count_own++ == 0) measured.first_own = number;
      ranges.push_back(range);
    }
    norms->all_.resize(measured.first + measured.count);
  }
  const auto allocate = [&](Buffer& buffer, MemoryKind kind, size_t bytes) -> absl::Status {
    ASSIGN_OR_RETURN(buffer, Buffer::Allocate(device, kind, bytes));
    return absl::OkStatus();
  };
  const size_t bytes = ranges.size() * sizeof(double);
  RETURN_IF_ERROR(allocate(norms->ranges_, MemoryKind::kDevice, ranges.size() * sizeof(ranges[0])));
  RETURN_IF_ERROR(allocate(norms->lanes_, MemoryKind::kDevice, kSquareLanes * bytes));
  RETURN_IF_ERROR(allocate(norms->squares_, MemoryKind::kDevice, bytes));
  RETURN_IF_ERROR(allocate(norms->scratch_, MemoryKind::kDevice, kSumSquaresScratchBytes));
  RETURN_IF_ERROR(allocate(norms->sums_, MemoryKind::kPinnedHost, norms->buckets_.size() * 8));
  RETURN_IF_ERROR(stream.Copy(norms->ranges_.data(), ranges.data(), norms->ranges_.bytes()));
  RETURN_IF_ERROR(stream.Synchronize());
  return norms;
}

// Measures the ranges that this rank owns.  Others are zeros.
absl::Status ServerNorms::Measure() {
  const bool whole = plan_.spec.shape.workers() == 1;
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
      RETURN_IF_ERROR(SumSquaresOfRanges(stream_, sum, UpdatedShard(plan_, b).begin, ranges, count,
                                         lanes, squares));
    }
    RETURN_IF_ERROR(stream_.Copy(&all_[buckets_[b].first_own], squares, count * sizeof(double)));
    ranges += count;
    lanes += count * kSquareLanes;
    squares += count;
  }
  return stream_.Synchronize();
}

absl::Status ServerNorms::AddUp() {
  RETURN_IF_ERROR(server_.AwaitSums());
  RETURN_IF_ERROR(Measure());
  RETURN_IF_ERROR(communication_.Sum("sums of squares of gradients", all_));
  const RunShape& shape = plan_.spec.shape;
  auto* const sums = reinterpret_cast<double*>(sums_.data());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const auto squares = std::span(all_).subspan(buckets_[b].first, buckets_[b].count);
    sums[b] = shape.workers() == 1
                  ? squares.front()
                  : AddDirectRanges(plan_.order.buckets[b].elements,
                                    SizeOf(shape.WireType(plan_.order.buckets[b].dtype)),
                                    shape.workers(), squares);
  }
  return absl::OkStatus();
}

}  // namespace gyre
