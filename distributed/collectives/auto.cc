// auto.cc: each sum by the algorithm that a selector expects to be the fastest.
//
// Claims go round a ring of all ranks beside the sum, with the choice in them: ranks that mean
// different things may have chosen algorithms of which neither sends the other a message.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/algorithms.h"
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
    const std::string& name = selector_.Choose(tensor_.bytes());
    const auto member = std::ranges::find(members_, name, &Member::algorithm);
    GYRE_CHECK(member != members_.end());
    chosen_ = member->sums.get();
    const Claim claim = channel_.claim();
    channel_.Open(claim.By(name));
    RETURN_IF_ERROR(channel_.Announce());
    return chosen_->Start(claim, operation_, tensor_);
  }

  absl::StatusOr<Advance> Step() override {
    RETURN_IF_ERROR(channel_.Settled().status());
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
