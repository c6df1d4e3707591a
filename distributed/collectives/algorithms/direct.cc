// direct.cc: each rank sends every other rank that rank's part, adds up its own in one pass, and
// sends it to all.
//
// An element is summed once, in rank order, halves in F32 and rounded once: the error of F16 on the
// wire does not grow with the ranks.  2(n-1) messages a segment, 2(n-1)/n S bytes; 2 latencies.
//
// F32 may travel as halves: what is sent is rounded into staging, and a sum is widened from there.
//
// A part travels in segments.  Between each pair of ranks their order is
//   scatter 0 ... scatter w-1, gather 0, scatter w, gather 1, scatter w+1, ...
// with a window of w segments under way; both ends post in that order.

#include <algorithm>
#include <array>
#include <utility>

#include "distributed/collectives/algorithms/algorithms.h"
#include "distributed/collectives/algorithms/direct_ranges.h"

namespace gyre {
namespace {

class Direct final : public Collective {
 public:
  using Collective::Collective;

 private:
  static constexpr int kWindow = 4;

  bool scatters() const { return operation_ != Operation::kAllgather; }
  bool gathers() const { return operation_ != Operation::kReduceScatter; }
  ElementRange Segment(int rank, int64_t segment) const {
    return FixedPart(Part(rank), segment_elements_, segment);
  }
  // Whether F32 travels as halves.
  bool narrow() const { return wire_type_ != tensor_.dtype; }
  size_t Bytes(ElementRange range) const { return range.count() * SizeOf(wire_type_); }
  std::byte* Slot(int area, int64_t segment, int rank) {
    return Staging(0) + ((area * kWindow + segment % kWindow) * ranks_ + rank) * slot_bytes_;
  }
  // Where rank `from`'s share of this rank's part arrives.
  std::byte* Share(int64_t segment, int from) { return Slot(0, segment, from); }
  // Of halves: a share for rank `to`, in this rank's own place its part; where `of`'s sum arrives.
  std::byte* Narrowed(int64_t segment, int to) { return Slot(1, segment, to); }
  std::byte* Sum(int64_t segment, int of) { return Slot(2, segment, of); }

  absl::Status Begin() override {
    if (operation_ == Operation::kBroadcast) return Lacks();
    const int64_t longest = Part(0).count();
    const bool narrows =
        wire_ && tensor_.dtype == DType::kF32 && ranks_ > 1 && operation_ == Operation::kAllreduce;
    wire_type_ = narrows ? *wire_ : tensor_.dtype;
    segment_elements_ = DirectSegmentElements(SizeOf(wire_type_));
    segments_ = (longest + segment_elements_ - 1) / segment_elements_;
    slot_bytes_ =
        (std::min<size_t>(kDirectSegmentBytes, longest * SizeOf(wire_type_)) + 63) / 64 * 64;
    if (scatters()) Staging((narrow() ? 3 : 1) * kWindow * ranks_ * slot_bytes_);
    summed_ = gathered_ = 0;
    partials_.assign(ranks_, 0);
    swaps_partials_ = operation_ == Operation::kAllreduce;
    for (auto& requests : scattering_) requests.clear();
    for (auto& requests : gathering_) requests.clear();
    for (int64_t segment = 0; segment < kWindow; ++segment) RETURN_IF_ERROR(Scatter(segment));
    return absl::OkStatus();
  }

  absl::StatusOr<Advance> Step() override {
    bool moved = false;
    while (gathered_ < summed_) {
      ASSIGN_OR_RETURN(const bool done, AllDone(gathering_[gathered_ % kWindow]));
      if (!done) break;
      for (int rank = 0; narrow() && rank < ranks_; ++rank) {
        const bool own = rank == rank_;
        WidenFrom(own ? Narrowed(gathered_, rank) : Sum(gathered_, rank), Segment(rank, gathered_));
      }
      ++gathered_;
      moved = true;
    }
    if (summed_ < segments_) {
      // The gather of a window before has the place of this one's.
      if (gathered_ + kWindow <= summed_) return moved ? Advance::kMoved : Advance::kWaiting;
      ASSIGN_OR_RETURN(const bool arrived, AllDone(scattering_[summed_ % kWindow]));
      if (!arrived) return moved ? Advance::kMoved : Advance::kWaiting;
      if (scatters()) Add(summed_);
      RETURN_IF_ERROR(Gather(summed_));
      RETURN_IF_ERROR(Scatter(summed_ + kWindow));
      ++summed_;
      return Advance::kMoved;
    }
    if (gathered_ < segments_) return moved ? Advance::kMoved : Advance::kWaiting;
    if (swaps_partials_) {
      swaps_partials_ = false;
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        RETURN_IF_ERROR(Receive(&partials_[peer], sizeof(double), peer));
        RETURN_IF_ERROR(Send(&partials_[rank_], sizeof(double), peer));
      }
    }
    ASSIGN_OR_RETURN(const bool quiet, Quiet());
    if (!quiet) return Advance::kWaiting;
    for (const double partial : partials_) squares_ += partial;
    return Advance::kDone;
  }

  // Begin with the next rank, so that not all send to one at a time.
  template <typename Post>
  absl::Status ForEachPeer(const Post& post) {
    for (int i = 1; i < ranks_; ++i) RETURN_IF_ERROR(post((rank_ + i) % ranks_));
    return absl::OkStatus();
  }

  absl::Status Scatter(int64_t segment) {
    if (!scatters() || segment >= segments_) return absl::OkStatus();
    auto& requests = scattering_[segment % kWindow];
    return ForEachPeer([&](int peer) -> absl::Status {
      const ElementRange mine = Segment(rank_, segment), theirs = Segment(peer, segment);
      ASSIGN_OR_RETURN(requests.emplace_back(),
                       Post(RequestKind::kReceive, Share(segment, peer), Bytes(mine), peer));
      std::byte* from = At(theirs.begin);
      if (narrow()) {
        RoundTo(Narrowed(segment, peer), theirs);
        from = Narrowed(segment, peer);
      }
      ASSIGN_OR_RETURN(requests.emplace_back(),
                       Post(RequestKind::kSend, from, Bytes(theirs), peer));
      return absl::OkStatus();
    });
  }

  absl::Status Gather(int64_t segment) {
    if (!gathers()) return absl::OkStatus();
    auto& requests = gathering_[segment % kWindow];
    return ForEachPeer([&](int peer) -> absl::Status {
      const ElementRange mine = Segment(rank_, segment), theirs = Segment(peer, segment);
      std::byte* const to = narrow() ? Sum(segment, peer) : At(theirs.begin);
      std::byte* const from = narrow() ? Narrowed(segment, rank_) : At(mine.begin);
      ASSIGN_OR_RETURN(requests.emplace_back(),
                       Post(RequestKind::kReceive, to, Bytes(theirs), peer));
      ASSIGN_OR_RETURN(requests.emplace_back(), Post(RequestKind::kSend, from, Bytes(mine), peer));
      return absl::OkStatus();
    });
  }

  void RoundTo(std::byte* to, ElementRange range) {
    RoundFloats(wire_type_, reinterpret_cast<const float*>(At(range.begin)), to, range.count());
  }
  void WidenFrom(const std::byte* from, ElementRange range) {
    WidenToFloats(wire_type_, from, reinterpret_cast<float*>(At(range.begin)), range.count());
  }

  void Add(int64_t segment) {
    const ElementRange mine = Segment(rank_, segment);
    if (narrow()) RoundTo(Narrowed(segment, rank_), mine);
    void* const output = narrow() ? Narrowed(segment, rank_) : At(mine.begin);
    inputs_.clear();
    for (int from = 0; from < ranks_; ++from) {
      inputs_.push_back(from == rank_ ? output : Share(segment, from));
    }
    partials_[rank_] += AddAll(wire_type_, inputs_, {&output, 1}, mine.count());
  }

  DType wire_type_ = DType::kF32;
  int64_t segment_elements_ = 0;
  int64_t segments_ = 0;
  size_t slot_bytes_ = 0;
  int64_t summed_ = 0, gathered_ = 0;  // segments
  bool swaps_partials_ = false;
  std::array<std::vector<Request>, kWindow> scattering_, gathering_;
  std::vector<const void*> inputs_;
  std::vector<double> partials_;  // by rank
};

}  // namespace

std::unique_ptr<Collective> NewDirect(Communicator& communicator, int tag, std::vector<int> ranks) {
  return std::make_unique<Direct>(communicator, tag, std::move(ranks));
}

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
