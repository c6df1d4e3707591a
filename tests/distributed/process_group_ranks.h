// process_group_ranks.h: process groups whose ranks are threads, and an event that a test sets.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/process_group.h"
#include "tests/distributed/rank_threads.h"

namespace gyre {

class FakeEvent final : public Event {
 public:
  absl::StatusOr<bool> Done() const override {
    polled_ = true;
    if (failed_) return absl::DataLossError("kernel fault");
    return done_.load();
  }
  absl::Status Synchronize() const override { return absl::UnimplementedError("only polled"); }
  void Set() { done_ = true; }
  void Fail() { failed_ = true; }
  void WaitUntilPolled() const {
    while (!polled_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> done_ = false, failed_ = false;
  mutable std::atomic<bool> polled_ = false;
};

// Runs body(group) on a thread for each rank, besides its group's.
inline void RunGroups(std::vector<std::unique_ptr<Communicator>> communicators,
                      const std::function<AllreduceChoice(int rank)>& choice,
                      const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = ProcessGroup::Start([&] { return std::move(communicators[rank]); },
                                             choice(static_cast<int>(rank)));
      ASSERT_TRUE(group.ok()) << group.status();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void RunRanksOn(const std::string& algorithm, int ranks, int64_t timeout_ms,
                       const std::function<void(ProcessGroup&)>& body,
                       const std::vector<int>& hosts = {}) {
  RunGroups(
      NewThreadCommunicators(ranks, timeout_ms, hosts),
      [&](int) { return AllreduceChoice{algorithm}; }, body);
}

// The group of a job of one rank.
inline std::unique_ptr<ProcessGroup> GroupOfOne() {
  return *ProcessGroup::Start([] { return std::move(NewThreadCommunicators(1, 20'000)[0]); },
                              {"ring"});
}

inline Tensor View(std::vector<float>& data) {
  return {data.data(), {static_cast<int64_t>(data.size())}, DType::kF32};
}

}  // namespace gyre
