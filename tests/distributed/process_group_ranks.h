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

// Each rank has a thread of its own besides its group's.
inline void RunRanksOn(const std::string& algorithm, int ranks, int64_t timeout_ms,
                       const std::function<void(ProcessGroup&)>& body,
                       const std::vector<int>& hosts = {}) {
  auto communicators = NewThreadCommunicators(ranks, timeout_ms, hosts);
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    threads.emplace_back([&] {
      auto group = ProcessGroup::Start(
          [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return std::move(communicator);
          },
          {algorithm});
      ASSERT_TRUE(group.ok()) << group.status();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
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
