#include "distributed/transport/subset_communicator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

class SubsetCommunicator final : public Communicator {
 public:
  SubsetCommunicator(Communicator& whole, std::vector<int> ranks)
      : whole_(whole), ranks_(std::move(ranks)) {
    std::map<int, int> numbers;
    for (const int rank : ranks_) {
      const int next = static_cast<int>(numbers.size());
      hosts_.push_back(numbers.try_emplace(whole.hosts()[rank], next).first->second);
    }
    const auto self = std::ranges::find(ranks_, whole.rank());
    GYRE_CHECK(self != ranks_.end());
    rank_ = static_cast<int>(self - ranks_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  int in_job(int rank) const override { return whole_.in_job(ranks_[rank]); }
  const std::vector<int>& hosts() const override { return hosts_; }
  int64_t timeout_ms() const override { return whole_.timeout_ms(); }
  int max_tag() const override { return whole_.max_tag(); }
  bool moves_device_memory(DeviceKind kind) const override {
    return whole_.moves_device_memory(kind);
  }
  absl::StatusOr<Request> Send(const void* data, size_t bytes, int to, int tag) override {
    return whole_.Send(data, bytes, ranks_[to], tag);
  }
  absl::StatusOr<Request> Receive(void* data, size_t bytes, int from, int tag) override {
    return whole_.Receive(data, bytes, ranks_[from], tag);
  }
  absl::StatusOr<Request> HandOver(const void* data, size_t bytes, int to, int tag) override {
    return whole_.HandOver(data, bytes, ranks_[to], tag);
  }
  absl::StatusOr<Request> Expect(void* data, size_t bytes, int from, int tag) override {
    return whole_.Expect(data, bytes, ranks_[from], tag);
  }
  absl::Status Withdraw(Request request) override { return whole_.Withdraw(request); }
  absl::StatusOr<bool> Test(Request request) override { return whole_.Test(request); }
  absl::Status Poke(int waiting_for) override { return whole_.Poke(InWhole(waiting_for)); }
  absl::Status Overdue(int rank) override { return whole_.Overdue(InWhole(rank)); }
  void Tell(const absl::Status& fault) override { whole_.Tell(fault); }
  void Abort(const absl::Status& reason, int exit_code) override {
    whole_.Abort(reason, exit_code);
  }

 private:
  int InWhole(int rank) const { return rank == kNobody ? kNobody : ranks_[rank]; }

  Communicator& whole_;
  const std::vector<int> ranks_;
  std::vector<int> hosts_;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> NewSubsetCommunicator(Communicator& whole, std::vector<int> ranks) {
  return std::make_unique<SubsetCommunicator>(whole, std::move(ranks));
}

}  // namespace gyre
