// The communication thread, its ranks being threads: order, events, mismatches, aborts.

#include "distributed/communication_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/distributed/rank_threads.h"

namespace gyre {
namespace {

using testing::HasSubstr;

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

// Each rank has a thread of its own besides its communication thread.
void RunRanksOn(const std::string& algorithm, int ranks, int64_t timeout_ms,
                const std::function<void(CommunicationThread&)>& body) {
  auto communicators = NewThreadCommunicators(ranks, timeout_ms);
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    threads.emplace_back([&] {
      auto thread = CommunicationThread::Start(
          [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return std::move(communicator);
          },
          algorithm);
      ASSERT_TRUE(thread.ok()) << thread.status();
      body(**thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor View(std::vector<float>& data) {
  return {data.data(), {static_cast<int64_t>(data.size())}, DType::kF32};
}

TEST(CommunicationThread, SumsInOrderOfSubmission) {
  for (const char* algorithm : {"ring", "naive"}) {
    for (const int ranks : {1, 2, 3, 5}) {
      RunRanksOn(algorithm, ranks, kPatienceMs, [&](CommunicationThread& thread) {
        EXPECT_EQ(thread.size(), ranks);
        constexpr int kBuckets = 20;
        std::vector<std::vector<float>> buckets;
        for (int i = 0; i < kBuckets; ++i) {
          buckets.emplace_back(i * 97, static_cast<float>(thread.rank() + 1));
        }
        std::vector<CommunicationThread::Ticket> tickets;
        for (int i = 0; i < kBuckets; ++i) {
          tickets.push_back(
              thread.Submit("bucket " + std::to_string(i), View(buckets[i]), nullptr));
        }
        const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
        for (int i = kBuckets - 1; i >= 0; --i) {
          auto result = thread.Wait(tickets[i]);
          ASSERT_TRUE(result.ok()) << result.status();
          EXPECT_EQ(*result, double{sum} * sum * i * 97);
          EXPECT_EQ(buckets[i], std::vector<float>(i * 97, sum));
          EXPECT_EQ(*thread.Done(tickets[0]), true);
        }
      });
    }
  }
}

TEST(CommunicationThread, WaitsForTheEvent) {
  RunRanksOn("ring", 3, kPatienceMs, [](CommunicationThread& thread) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> data(1000, -1e9f);
      FakeEvent ready;
      const auto ticket = thread.Submit("late", View(data), &ready);
      EXPECT_EQ(*thread.Done(ticket), false);
      for (float& x : data) x = static_cast<float>(thread.rank());
      ready.Set();
      ASSERT_TRUE(thread.Wait(ticket).ok());
      EXPECT_EQ(data, std::vector<float>(1000, 3.0f));
    }
  });
}

TEST(CommunicationThread, SumsNothing) {
  RunRanksOn("ring", 3, kPatienceMs, [](CommunicationThread& thread) {
    std::vector<float> some(1);
    // A null pointer is as good as any other for no elements.
    const Tensor empty{thread.rank() == 1 ? nullptr : some.data(), {0}, DType::kF32};
    EXPECT_TRUE(thread.Sum("nothing", empty).ok());
    EXPECT_TRUE(thread.Sum("something", View(some)).ok());
  });
}

TEST(CommunicationThread, MismatchIsAnErrorOnAllRanks) {
  struct Case {
    const char* label;
    int64_t elements;
    DType dtype;
    const char* shown;
  };
  const Case usual = {"conv1", 100'000, DType::kF32, "sum of 100000 F32 \"conv1\""};
  for (const Case& other : {Case{"conv2", 100'000, DType::kF32, "sum of 100000 F32 \"conv2\""},
                            Case{"conv1", 99'999, DType::kF32, "sum of 99999 F32 \"conv1\""},
                            Case{"conv1", 100'000, DType::kF64, "sum of 100000 F64 \"conv1\""}}) {
    for (const int ranks : {2, 3, 5}) {
      for (const int odd : {0, ranks - 1}) {
        RunRanksOn("ring", ranks, kPatienceMs, [&](CommunicationThread& thread) {
          std::vector<double> memory(100'000);
          EXPECT_TRUE(thread.Barrier().ok());
          const Case& mine = thread.rank() == odd ? other : usual;
          const absl::Status status =
              thread.Sum(mine.label, {memory.data(), {mine.elements}, mine.dtype});
          EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
          EXPECT_THAT(std::string(status.message()), HasSubstr(usual.shown));
          EXPECT_THAT(std::string(status.message()), HasSubstr(other.shown));
          EXPECT_EQ(thread.Barrier(), status);
        });
      }
    }
  }
}

TEST(CommunicationThread, OtherOperationIsAnErrorOnAllRanks) {
  RunRanksOn("ring", 2, kPatienceMs, [&](CommunicationThread& thread) {
    std::vector<float> data(10);
    const absl::Status status =
        thread.rank() == 0 ? thread.Barrier() : thread.Sum("fc", View(data));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 0 is at a barrier, rank 1 at sum of 10 F32 \"fc\""));
  });
}

TEST(CommunicationThread, CheckEqualNamesTheFirstThatDiffers) {
  RunRanksOn("ring", 5, kPatienceMs, [&](CommunicationThread& thread) {
    const std::string large(100'000, 'p');
    EXPECT_TRUE(thread.CheckEqual("plan", large).ok());
    const absl::Status status = thread.CheckEqual(
        "plan", thread.rank() < 3 ? large : large + std::to_string(thread.rank()));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 3 is the first whose plan differs from rank 0's"));
  });
}

TEST(CommunicationThread, AfterAnErrorEveryTicketHasIt) {
  RunRanksOn("ring", 2, kPatienceMs, [&](CommunicationThread& thread) {
    std::vector<float> first(100, 1.0f), second(100, 1.0f), third(100, 1.0f);
    FakeEvent failing, never;
    EXPECT_TRUE(thread.Sum("first", View(first)).ok());
    const auto bad = thread.Submit("second", View(second), &failing);
    const auto later = thread.Submit("third", View(third), &never);
    failing.Fail();
    const absl::Status status = thread.Wait(bad).status();
    EXPECT_EQ(status, absl::DataLossError("sum of 100 F32 \"second\": kernel fault"));
    EXPECT_EQ(thread.Wait(later).status(), status);
    EXPECT_EQ(thread.Done(later).status(), status);
    EXPECT_EQ(thread.Barrier(), status);
    EXPECT_EQ(third, std::vector<float>(100, 1.0f));
    // ... and the destructor does not wait for the event that never comes.
  });
}

// What a rank's last message waits for must not be its next operation: it may have none.
TEST(CommunicationThread, AnIdleRankLetsGoOfWhatItHasSent) {
  const auto transports = NewThreadCommunicators(3, 2000);
  std::atomic<int> done = 0;
  std::vector<std::thread> ranks;
  for (const auto& transport : transports) {
    ranks.emplace_back([&] {
      auto thread = CommunicationThread::Start(
          [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return std::make_unique<BufferingCommunicator>(*transport);
          },
          "naive");
      ASSERT_TRUE(thread.ok());
      std::vector<float> data(10, 1);
      EXPECT_TRUE((*thread)->Sum("fc", View(data)).ok());
      ++done;
      while (done < 3) std::this_thread::yield();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(CommunicationThread, LeaderMayWorkLongerThanSilenceMayLast) {
  constexpr int64_t kSilenceMs = 2000;
  std::atomic<int> worked = 0;
  const auto work = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * kSilenceMs));
    ++worked;
    return absl::OkStatus();
  };
  RunRanksOn("ring", 3, kSilenceMs, [&](CommunicationThread& thread) {
    EXPECT_TRUE(thread.LeaderDoes("long work", work).ok());
    EXPECT_EQ(worked, 1);
    EXPECT_TRUE(thread.Barrier().ok());
  });
}

TEST(CommunicationThread, LeadersErrorIsItsOwn) {
  RunRanksOn("ring", 3, kPatienceMs, [](CommunicationThread& thread) {
    const absl::Status full = absl::ResourceExhaustedError("disk full");
    EXPECT_EQ(thread.LeaderDoes("work", [&] { return full; }),
              thread.rank() == 0 ? full : absl::OkStatus());
  });
}

TEST(CommunicationThread, HangingStartAndEndAreErrors) {
  // The library that blocks for ever in one of the two.
  struct Hanging final : WrappedCommunicator {
    Hanging(Communicator& inner, std::future<void> end)
        : WrappedCommunicator(inner), end_(std::move(end)) {}
    ~Hanging() override { end_.wait(); }
    std::future<void> end_;
  };
  // Outlive the threads that are left behind.
  static auto* const inner = new auto(NewThreadCommunicators(1, kPatienceMs));
  static auto* const never = new std::promise<void>[2];
  const auto start = [] { return std::make_unique<Hanging>(*(*inner)[0], never[0].get_future()); };
  auto thread = CommunicationThread::Start(start, "ring", /*meeting_timeout_ms=*/50);
  ASSERT_TRUE(thread.ok());
  const std::string end((*thread)->Stop().message());
  EXPECT_THAT(end, testing::StartsWith("MPI_Finalize has not returned on host "));
  EXPECT_THAT(end, testing::EndsWith(" for 50 ms: another rank has not come to its end"));

  const auto hang = []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    never[1].get_future().wait();
    return absl::InternalError("never");
  };
  const absl::Status status = CommunicationThread::Start(hang, "ring", 50).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("MPI_Init has not returned on host "));
}

TEST(CommunicationThread, SilentRankIsNamed) {
  std::atomic<int> waiting = 2;
  RunRanksOn("ring", 3, 50, [&](CommunicationThread& thread) {
    std::vector<float> data(10);
    if (thread.rank() == 1) {
      while (waiting > 0) std::this_thread::yield();
      return;
    }
    const absl::Status status = thread.Sum("fc", View(data));
    --waiting;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has been silent for 50 ms"));
    if (thread.rank() == 2) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    }
  });
}

TEST(CommunicationThread, AbortEndsARankThatWaits) {
  const absl::Status reason = absl::ResourceExhaustedError("out of paper");
  for (const bool waits_for_event : {false, true}) {
    RunRanksOn("ring", 3, kPatienceMs, [&](CommunicationThread& thread) {
      std::vector<float> data(10);
      FakeEvent never;
      const bool aborts = thread.rank() == 1;
      // Rank 1 keeps the others waiting, or has them wait for an event, and aborts from a thread of
      // its own.
      if (aborts && !waits_for_event) {
        std::thread([&] { thread.Abort(reason); }).join();
        EXPECT_EQ(thread.Barrier(), reason);
        return;
      }
      const auto ticket = thread.Submit("fc", View(data), aborts ? &never : nullptr);
      if (aborts) {
        never.WaitUntilPolled();
        std::thread([&] { thread.Abort(reason); }).join();
      }
      const absl::Status status = thread.Wait(ticket).status();
      EXPECT_EQ(status.code(), reason.code());
      EXPECT_THAT(std::string(status.message()), HasSubstr("out of paper"));
    });
  }
}

// Gradients in device memory, made on a stream that is late, and metrics on the host between them.
TEST(CommunicationThread, SumsDeviceMemoryBesideTheHosts) {
  const auto cpu = [](int) { return NewCpuDevice({}); };
  const auto sim = [](int rank) { return NewSimDevice({.delay_seed = 7 + uint64_t(rank)}); };
  for (const std::function<std::unique_ptr<Device>(int)>& make : {std::function(cpu), {sim}}) {
    for (const int ranks : {1, 2, 3}) {
      std::vector<std::unique_ptr<Device>> devices;  // outlive the communication threads
      for (int rank = 0; rank < ranks; ++rank) devices.push_back(make(rank));
      RunRanksOn("ring", ranks, kPatienceMs, [&](CommunicationThread& thread) {
        Device& device = *devices[thread.rank()];
        EXPECT_FALSE(thread.sums_device_memory());
        ASSERT_TRUE(thread.UseDevice(device).ok());
        ASSERT_TRUE(thread.sums_device_memory());
        auto stream = *device.NewStream();
        auto made = *device.NewEvent();
        for (int64_t count : {0, 1, 1000, 20'000}) {
          const Buffer memory =
              *Buffer::Allocate(device, MemoryKind::kDevice, count * sizeof(float));
          const std::vector<float> mine(count, static_cast<float>(thread.rank() + 1));
          ASSERT_TRUE(stream->Copy(memory.data(), mine.data(), memory.bytes()).ok());
          ASSERT_TRUE(stream->Record(*made).ok());
          const auto ticket = thread.Submit("bucket", {memory.data(), {count}, DType::kF32},
                                            made.get(), MemoryKind::kDevice);
          std::vector<float> metrics = {1};
          EXPECT_TRUE(thread.Sum("metrics", View(metrics)).ok());
          EXPECT_EQ(metrics[0], ranks);
          const auto result = thread.Wait(ticket);
          ASSERT_TRUE(result.ok()) << result.status();
          const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
          EXPECT_EQ(*result, double{sum} * sum * static_cast<double>(count));
          std::vector<float> summed(count);
          ASSERT_TRUE(stream->Copy(summed.data(), memory.data(), memory.bytes()).ok());
          ASSERT_TRUE(stream->Synchronize().ok());
          EXPECT_EQ(summed, std::vector<float>(count, sum));
        }
      });
    }
  }
}

TEST(CommunicationThread, LeavesDeviceMemoryToItsCaller) {
  const auto device = NewSimDevice({});
  RunRanksOn("naive", 1, kPatienceMs, [&](CommunicationThread& thread) {
    EXPECT_TRUE(thread.UseDevice(*device).ok());
    EXPECT_FALSE(thread.sums_device_memory());
  });
}

TEST(CommunicationThread, OtherDeviceIsAnErrorOnAllRanks) {
  RunRanksOn("ring", 3, kPatienceMs, [&](CommunicationThread& thread) {
    const auto device = thread.rank() == 2 ? NewSimDevice({}) : NewCpuDevice({});
    EXPECT_THAT(std::string(thread.UseDevice(*device).message()),
                HasSubstr("rank 0 is at the use of device cpu, rank 2 at the use of device sim"));
    EXPECT_FALSE(thread.sums_device_memory());
  });
  RunRanksOn("nccl", 2, kPatienceMs, [&](CommunicationThread& thread) {
    const auto device = NewCpuDevice({});
    EXPECT_EQ(thread.UseDevice(*device).code(), absl::StatusCode::kInvalidArgument);
  });
}

// A rank goes away in the middle of sums in device memory; what the others then free must not be
// worked on any more (seen by ASan).
TEST(CommunicationThread, AfterAnAbortDeviceMemoryIsFree) {
  const absl::Status reason = absl::ResourceExhaustedError("out of paper");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int rank = 0; rank < 3; ++rank) {
      devices.push_back(NewSimDevice({.copy_bytes_per_s = 1e9, .delay_seed = seed}));
    }
    RunRanksOn("ring", 3, kPatienceMs, [&](CommunicationThread& thread) {
      Device& device = *devices[thread.rank()];
      ASSERT_TRUE(thread.UseDevice(device).ok());
      constexpr int64_t kCount = 1'000'000;
      const Buffer memory = *Buffer::Allocate(device, MemoryKind::kDevice, kCount * sizeof(float));
      std::memset(memory.data(), 0, memory.bytes());
      CommunicationThread::Ticket ticket = 0;
      for (int i = 0; i < 50; ++i) {
        ticket = thread.Submit("bucket", {memory.data(), {kCount}, DType::kF32}, nullptr,
                               MemoryKind::kDevice);
        if (i == 0 && thread.rank() == 1) {
          ASSERT_TRUE(thread.Wait(ticket).ok());
        }
      }
      if (thread.rank() == 1) thread.Abort(reason);
      EXPECT_EQ(thread.Wait(ticket).status().code(), reason.code());
    });
  }
}

TEST(CommunicationThread, StartReportsErrors) {
  const auto failing = []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return absl::UnavailableError("no network");
  };
  EXPECT_EQ(CommunicationThread::Start(failing, "ring").status(),
            absl::UnavailableError("no network"));
  const auto alone = []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return std::move(NewThreadCommunicators(1, kPatienceMs)[0]);
  };
  EXPECT_EQ(CommunicationThread::Start(alone, "best").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Ranks out of step, operations of all kinds, every one finished by the destructor.
TEST(CommunicationThread, DestructorFinishesWhatWasSubmitted) {
  std::vector<std::vector<float>> data(3, std::vector<float>(5000, 1.0f));
  RunRanksOn("ring", 3, kPatienceMs, [&](CommunicationThread& thread) {
    for (int i = 0; i < 5; ++i) {
      thread.Submit(std::to_string(i), View(data[thread.rank()]), nullptr);
    }
  });
  for (const auto& rank : data) EXPECT_EQ(rank, std::vector<float>(5000, 243.0f));
}

}  // namespace
}  // namespace gyre
