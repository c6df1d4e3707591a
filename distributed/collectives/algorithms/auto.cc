// auto.cc: each sum by the algorithm that a selector expects to be the fastest, and the other
// operations by those that have them.
//
// Claims go round a ring of all ranks beside the operation, with the choice in them: ranks that
// mean different things may have chosen algorithms of which neither sends the other a message.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/algorithms/algorithms.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

class Auto final : public Collective {
 public:
  Auto(Communicator& communicator, int tag, Selector selector, std::vector<Member> members)
      : Collective(communicator, tag),
        selector_(std::move(selector)),
        members_(std::move(members)) {}

 private:
  absl::Status Begin() override {
    const std::string& name = Choice();
    chosen_ = Find(name);
    GYRE_CHECK(chosen_ != nullptr);
    const Claim claim = claim_;
    claim_ = claim.By(name);
    RETURN_IF_ERROR(Announce());
    return chosen_->Start(claim, operation_, tensor_, root_);
  }

  const std::string& Choice() const {
    static const std::string kShared = "shared", kDirect = "direct", kBroadcast = "broadcast";
    if (operation_ == Operation::kAllreduce) return selector_.Choose(tensor_.bytes());
    if (operation_ == Operation::kBroadcast) return kBroadcast;
    return Find(kShared) != nullptr ? kShared : kDirect;  // they add in the same order
  }

  Collective* Find(const std::string& name) const {
    const auto member = std::ranges::find(members_, name, &Member::algorithm);
    return member == members_.end() ? nullptr : member->sums.get();
  }

  absl::StatusOr<Advance> Step() override {
    RETURN_IF_ERROR(Settled().status());
    return chosen_->Progress(&squares_);
  }

  const Selector selector_;
  const std::vector<Member> members_;
  Collective* chosen_ = nullptr;
};

}  // namespace

std::unique_ptr<Collective> NewAuto(Communicator& communicator, int tag, Selector selector,
                                    std::vector<Member> members) {
  return std::make_unique<Auto>(communicator, tag, std::move(selector), std::move(members));
}

}  // namespace gyre
