// hierarchical.cc: the ranks of a host add in memory that they share, and each part of that sum is
// then summed over the hosts.
//
// H hosts; p, the fewest ranks that one of them has, own a part each: rank l < p of every host adds
// up part l of its host, then sums it with the ranks l of the others, and all ranks of the host
// copy it.  2(H-1)/H S/p bytes sent by an owner, so 2(H-1)/H S by a host, whatever its ranks: where
// they share one link, a ring over all n ranks sends 2(n-1)/n S through it.
//
// Within a host `shared`, between hosts `direct`: an element is added in rank order within each
// host and rounded, then in host order and rounded.

#include <algorithm>
#include <numeric>
#include <utility>

#include "distributed/collectives/algorithms/algorithms.h"

namespace gyre {
namespace {

class Hierarchical final : public Collective {
 public:
  // `place` is this rank's in its host.  between: null on a rank that owns no part.
  Hierarchical(Communicator& communicator, int tag, size_t owners, size_t place,
               std::unique_ptr<Collective> within, std::unique_ptr<Collective> between)
      : Collective(communicator, tag),
        within_(std::move(within)),
        between_(std::move(between)),
        place_(place),
        partials_(owners) {}

 private:
  enum class HierarchicalStage { kScatter, kBetween, kSquares, kGather };

  absl::Status Begin() override {
    if (operation_ != Operation::kAllreduce) return Lacks();
    std::ranges::fill(partials_, 0);
    stage_ = HierarchicalStage::kScatter;
    return StartOn(*within_, Operation::kReduceScatter, tensor_);
  }

  absl::StatusOr<Advance> Step() override {
    const bool between = stage_ == HierarchicalStage::kBetween;
    double ignored = 0;
    Collective& sums = between ? *between_ : *within_;
    ASSIGN_OR_RETURN(const Advance advance, sums.Progress(between ? &partials_[place_] : &ignored));
    if (advance != Advance::kDone) return advance;
    switch (stage_) {
      case HierarchicalStage::kScatter:
        if (between_ != nullptr) {
          stage_ = HierarchicalStage::kBetween;
          const ElementRange part = EqualPart(tensor_.elements(), owners(), place_);
          RETURN_IF_ERROR(StartOn(*between_, Operation::kAllreduce,
                                  {At(part.begin), Shape({part.count()}), tensor_.dtype}));
          return Advance::kMoved;
        }
        [[fallthrough]];
      case HierarchicalStage::kBetween:
        stage_ = HierarchicalStage::kSquares;
        // Each has one that is not 0.
        RETURN_IF_ERROR(StartOn(*within_, Operation::kAllreduce,
                                {partials_.data(), Shape({owners()}), DType::kF64}));
        return Advance::kMoved;
      case HierarchicalStage::kSquares:
        stage_ = HierarchicalStage::kGather;
        RETURN_IF_ERROR(StartOn(*within_, Operation::kAllgather, tensor_));
        return Advance::kMoved;
      case HierarchicalStage::kGather:
        break;
    }
    squares_ = std::accumulate(partials_.begin(), partials_.end(), 0.0);
    return Advance::kDone;
  }

  absl::Status StartOn(Collective& sums, Operation operation, Tensor tensor) {
    return sums.Start(claim_, operation, tensor);
  }
  int64_t owners() const { return static_cast<int64_t>(partials_.size()); }

  const std::unique_ptr<Collective> within_, between_;
  const size_t place_;  // also the part that this rank owns, if there is one
  HierarchicalStage stage_ = HierarchicalStage::kScatter;
  std::vector<double> partials_;  // by part
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewHierarchical(Communicator& communicator, int tag,
                                                            const SharedArenas& arenas) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const auto host = static_cast<size_t>(communicator.hosts()[rank]);
    hosts.resize(std::max(hosts.size(), host + 1));
    hosts[host].push_back(rank);
  }
  const size_t owners =
      std::ranges::min(hosts, {}, [](const auto& host) { return host.size(); }).size();
  ASSIGN_OR_RETURN(auto within, NewSharedOfHost(communicator, tag, arenas));
  within->CutAmong(static_cast<int>(owners));
  const std::vector<int>& here = hosts[communicator.hosts()[communicator.rank()]];
  const size_t place = std::ranges::find(here, communicator.rank()) - here.begin();
  std::unique_ptr<Collective> between;
  if (place < owners) {
    std::vector<int> peers;
    for (const std::vector<int>& host : hosts) peers.push_back(host[place]);
    between = NewDirect(communicator, tag, std::move(peers));
  }
  return std::make_unique<Hierarchical>(communicator, tag, owners, place, std::move(within),
                                        std::move(between));
}

}  // namespace gyre
