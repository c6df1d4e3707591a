// broadcast.cc: what the root has goes down a tree, in segments: a rank passes one on as soon as it
// has arrived, while the next ones travel.
//
// n ranks, counted from the root; m segments.  The tree is one of two, by which takes fewer turns
// of the busiest link:
//   binomial: rank v hears from v without its lowest bit.  The root sends ceil(lg n) copies, so
//             about m lg n turns: few messages deep, for what is short.
//   chain:    each rank hears from the one before and sends one copy; m + n - 2 turns, so that S
//             bytes take hardly longer than to one rank: for what is long.
// For `auto`, whose claims go round all ranks: the tree tells its root nothing, and where ranks
// mean two roots both would take themselves for done. Source: Thakur, Rabenseifner & Gropp 2005,
// "Optimization of collective communication operations in MPICH", for the tree; the chain is its
// pipeline.

#include <bit>

#include "distributed/collectives/algorithms/algorithms.h"

namespace gyre {
namespace {

class Broadcast final : public Collective {
 public:
  using Collective::Collective;

 private:
  struct Child {
    int rank;
    MessageWindow sends = {};
  };

  ElementRange Segment(int64_t segment) const {
    return FixedPart({0, tensor_.elements()}, kSegmentBytes / size_, segment);
  }
  size_t Bytes(int64_t segment) const { return Segment(segment).count() * size_; }
  std::byte* Data(int64_t segment) const { return At(Segment(segment).begin); }

  absl::Status Begin() override {
    if (operation_ != Operation::kBroadcast) return Lacks();
    const int64_t elements = static_cast<int64_t>(kSegmentBytes) / size_;
    segments_ = (tensor_.elements() + elements - 1) / elements;
    const int place = (rank_ - root_ + ranks_) % ranks_;  // counted from the root
    children_.clear();
    PlantTree(place);
    arriving_.posted = arriving_.done = place == 0 ? segments_ : 0;
    return absl::OkStatus();
  }

  void PlantTree(int place) {
    const auto rank_at = [&](int v) { return (v + root_) % ranks_; };
    const int64_t copies = std::bit_width(static_cast<unsigned>(ranks_ - 1));  // ceil(lg n)
    if (segments_ * copies > segments_ + ranks_ - 2) {
      parent_ = rank_at(place + ranks_ - 1);
      if (place + 1 < ranks_) children_.push_back({rank_at(place + 1)});
      return;
    }
    parent_ = rank_at(place & (place - 1));
    // The deepest subtree first.
    const int lowest = place == 0 ? 1 << copies : place & -place;
    for (int distance = lowest / 2; distance > 0; distance /= 2) {
      if (place + distance < ranks_) children_.push_back({rank_at(place + distance)});
    }
  }

  absl::StatusOr<Advance> Step() override {
    ASSIGN_OR_RETURN(const bool asked, BeginNext(arriving_, segments_, [&](int64_t segment) {
                       return Post(RequestKind::kReceive, Data(segment), Bytes(segment), parent_);
                     }));
    ASSIGN_OR_RETURN(const bool arrived, EndDone(arriving_));
    bool moved = asked || arrived, done = arriving_.done == segments_;
    for (auto& [rank, sends] : children_) {
      ASSIGN_OR_RETURN(const bool gone, EndDone(sends));
      ASSIGN_OR_RETURN(const bool sent,
                       BeginNext(sends, arriving_.done, [&, to = rank](int64_t segment) {
                         return Post(RequestKind::kSend, Data(segment), Bytes(segment), to);
                       }));
      moved |= gone || sent;
      done &= sends.done == segments_;
    }
    if (done) return Advance::kDone;
    return moved ? Advance::kMoved : Advance::kWaiting;
  }

  int64_t segments_ = 0;
  int parent_ = 0;          // unused by the root
  MessageWindow arriving_;  // all done at the root
  std::vector<Child> children_;
};

}  // namespace

std::unique_ptr<Collective> NewBroadcast(Communicator& communicator, int tag) {
  return std::make_unique<Broadcast>(communicator, tag);
}

}  // namespace gyre
