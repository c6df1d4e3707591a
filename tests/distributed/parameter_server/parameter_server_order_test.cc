// What leaves first, and that nobody waits for ever for what leaves later.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/parameter_server/parameter_server.h"
#include "engine/runtime/check.h"
#include "tests/distributed/parameter_server/parameter_server_case.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using Options = ParameterServer::Options;

// Though an owner sends no more than one answer to a worker at a time, and no worker more than one
// update: whatever calls a worker makes first, and whatever it declares first.
TEST(ParameterServer, NobodyWaitsInACircle) {
  constexpr int64_t kRows = 16;
  const std::unique_ptr<Device> host = NewCpuDevice({});
  const auto run = [](const Options& options, bool updates_first) {
    Case made;
    made.ranks = 2 + options.servers;
    made.options = options;
    made.tables = {{.name = "x", .rows = kRows, .width = 1},
                   {.name = "y", .rows = kRows, .width = 1}};
    std::vector<int64_t> all(kRows);
    std::iota(all.begin(), all.end(), 0);
    made.accesses.resize(made.ranks);
    made.accesses[0] = {{false, 0, all}, {false, 1, all}, {true, 0, all}, {true, 1, all}};
    made.accesses[1] = {{false, 1, all}, {false, 0, all}, {true, 1, all}, {true, 0, all}};
    RunRanksOn("auto", made.ranks, kPatienceMs, [&](ProcessGroup& group) {
      const std::unique_ptr<Device> device = NewSimDevice({.delay_seed = 7});
      Worker worker(made, group, *device);
      ASSERT_TRUE(worker.Prepare().ok());
      ParameterServer& server = worker.server();
      const int accesses = group.rank() < made.workers() ? 2 : 0;
      const auto read = [&](int access) { ASSERT_TRUE(server.Read(access).ok()); };
      for (int c = 0; c < 4; ++c) {
        // A table is updated before it is read, or the other one.
        for (int access = 0; access < accesses; ++access) {
          ASSERT_TRUE(server.PreUpdate(access).ok());
          ASSERT_TRUE(server.Update(access).ok());
          if (!updates_first) read(1 - access);
        }
        for (int access = 0; updates_first && access < accesses; ++access) read(access);
        for (int access = 0; access < accesses; ++access) {
          ASSERT_TRUE(server.PostRead(access).ok());
        }
        ASSERT_TRUE(server.Clock().ok());
      }
      ASSERT_TRUE(server.Stop().ok());
    });
  };
  struct Place {
    bool background = true;
    Device* in_host_memory = nullptr;
  };
  for (const auto& [background, in_host_memory] :
       {Place{}, Place{false}, Place{true, host.get()}}) {
    for (const Sync sync : {Sync::kBsp, Sync::kAsync}) {
      for (const int servers : {1, 2}) {
        for (const bool updates_first : {false, true}) {
          run({.sync = sync,
               .servers = servers,
               .background = background,
               .in_host_memory = in_host_memory,
               .chunk_bytes = 1},
              updates_first);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// A communicator whose long messages seem not to be taken for a while.
struct Holding final : WrappedCommunicator {
  using WrappedCommunicator::WrappedCommunicator;
  absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                int tag) override {
    const bool holds = IsSend(kind) && holds_;  // before the other rank may have it, and say so
    ASSIGN_OR_RETURN(const Request request,
                     WrappedCommunicator::Begin(kind, data, bytes, peer, tag));
    if (!holds || bytes < size_t{1} << 17) return request;
    held_[request] = bytes;
    sum_ += bytes;
    most_ = std::max(most_, sum_);
    if (tags_.empty() || tags_.back() != tag) tags_.push_back(tag);
    return request;
  }
  absl::StatusOr<bool> Test(Request request) override {
    const auto held = held_.find(request);
    if (held != held_.end() && (!may_end_ || ++tests_ < 1000)) return false;
    absl::StatusOr<bool> done = WrappedCommunicator::Test(request);
    if (held == held_.end() || !done.ok() || !*done) return done;
    sum_ -= held->second;
    held_.erase(held);
    ++taken_;
    return done;
  }
  std::atomic<bool> holds_ = false, may_end_ = false;
  std::atomic<int> taken_ = 0;
  // Of the thread that drives.
  std::unordered_map<Request, size_t> held_;
  size_t sum_ = 0, most_ = 0;
  int tests_ = 0;
  std::vector<int> tags_;  // as they began, a message's segments together
};

// Of 4 MiB of updates, and of as much of answers: first those of what is read first.
TEST(ParameterServer, LittleIsUnderWayAndTheMostUrgentIsNext) {
  constexpr int kTables = 8;
  constexpr int64_t kRows = 1 << 17;  // half a MiB
  Case made;
  made.ranks = 2;
  made.options.servers = 1;
  made.accesses.resize(2);
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < kTables; ++t) {
    made.tables.push_back({.name = absl::StrCat("t", t), .rows = kRows, .width = 1});
    made.accesses[0].push_back({false, kTables - 1 - t, all});
    made.accesses[0].push_back({true, t, all});
  }
  const auto communicators = NewThreadCommunicators(2, kPatienceMs);
  std::vector<std::unique_ptr<Communicator>> all_holding;
  std::array<Holding*, 2> holding = {};
  for (int rank = 0; rank < 2; ++rank) {
    auto communicator = std::make_unique<Holding>(*communicators[rank]);
    holding[rank] = communicator.get();
    all_holding.push_back(std::move(communicator));
  }
  const auto body = [&](ProcessGroup& group) {
    const int rank = group.rank();
    const std::unique_ptr<Device> device = NewCpuDevice({});
    Worker worker(made, group, *device);
    ASSERT_TRUE(worker.Prepare().ok());
    for (int t = 0; rank == 0 && t < kTables; ++t) ASSERT_TRUE(worker.server().Read(t).ok());
    if (rank == 0) {
      Holding &updates = *holding[0], &answers = *holding[1];
      updates.holds_ = answers.holds_ = true;
      for (int t = 0; t < kTables; ++t) {
        ASSERT_TRUE(worker.server().PostRead(t).ok());
        ASSERT_TRUE(worker.server().PreUpdate(t).ok());
        ASSERT_TRUE(worker.server().Update(t).ok());
      }
      updates.may_end_ = true;
      while (updates.taken_ < 2 * kTables) std::this_thread::yield();  // segments
      answers.may_end_ = true;
    }
    ASSERT_TRUE(worker.server().Clock().ok());
    ASSERT_TRUE(worker.server().Stop().ok());
    const Holding& own = *holding[rank];
    EXPECT_GE(own.most_, size_t{1} << 20);
    EXPECT_LT(own.most_, size_t{3} << 19);
    ASSERT_EQ(own.tags_.size(), kTables);
    // Two had begun before all others were there.
    const auto number = [&](int place) { return (own.tags_[place] - kFirstServerTag) / 2; };
    for (int place = 3; place < kTables; ++place) {
      EXPECT_EQ(number(place) < number(place - 1), rank == 0) << place;
    }
  };
  RunGroups(
      std::move(all_holding), [](int) { return AllreduceChoice{"direct"}; }, body);
}

}  // namespace
}  // namespace gyre
