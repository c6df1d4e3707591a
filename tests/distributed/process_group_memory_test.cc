// Where a process group sums: in device memory, and in memory that its ranks share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// Gradients in device memory: each has staging of its own there, all of which the plan knows.
TEST(ProcessGroupMemory, DeviceSumsOvertakeOneThatWaits) {
  constexpr int64_t kCount = 300'000, kSums = 3 * 4;
  constexpr size_t kBytes = kCount * sizeof(float);
  for (const size_t missing : {0, 1}) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int rank = 0; rank < 3; ++rank) {
      const size_t planned = kSums * kBytes + ProcessGroup::DeviceBytes("ring", kBytes, 3);
      devices.push_back(
          NewSimDevice({.capacity_bytes = planned - missing, .delay_seed = 3 + uint64_t(rank)}));
    }
    std::vector<Buffer> memories(3);  // after an error other ranks read them until the groups end
    RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
      Device& device = *devices[group.rank()];
      ASSERT_TRUE(group.UseDevice(device).ok());
      Buffer& memory = memories[group.rank()];
      memory = *Buffer::Allocate(device, MemoryKind::kDevice, kSums * kBytes);
      const std::vector<float> mine(kSums * kCount, static_cast<float>(group.rank() + 1));
      auto stream = *device.NewStream();
      ASSERT_TRUE(stream->Copy(memory.data(), mine.data(), kSums * kBytes).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
      FakeEvent late;
      std::vector<ProcessGroup::Ticket> tickets;
      for (int i = 0; i < kSums; ++i) {
        const Tensor bucket{memory.data() + i * kBytes, {kCount}, DType::kF32};
        tickets.push_back(
            group.Submit("bucket", bucket, i == 0 ? &late : nullptr, MemoryKind::kDevice, i));
      }
      // One that nothing holds up: neither the first nor what follows that in its lane.
      for (int polls = 0; polls < 20'000; ++polls) {
        const auto done = group.Done(tickets[1]);
        if (!done.ok() || *done) break;
        usleep(1000);
      }
      const auto overtook = group.Done(tickets[1]);
      late.Set();
      absl::Status status;
      for (const auto ticket : tickets) status.Update(group.Wait(ticket).status());
      ASSERT_EQ(status.code(),
                missing > 0 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kOk)
          << status;
      if (missing > 0) return;
      EXPECT_TRUE(*overtook);
      std::vector<float> sums(kSums * kCount);
      ASSERT_TRUE(stream->Copy(sums.data(), memory.data(), kSums * kBytes).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_EQ(sums, std::vector<float>(kSums * kCount, 6.0f));
    });
  }
}

TEST(ProcessGroupMemory, LeavesDeviceMemoryToItsCaller) {
  const auto device = NewSimDevice({});
  RunRanksOn("naive", 1, kPatienceMs, [&](ProcessGroup& group) {
    EXPECT_TRUE(group.UseDevice(*device).ok());
    EXPECT_FALSE(group.sums_device_memory());
  });
}

TEST(ProcessGroupMemory, OtherDeviceIsAnErrorOnAllRanks) {
  RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
    const auto device = group.rank() == 2 ? NewSimDevice({}) : NewCpuDevice({});
    EXPECT_THAT(group.UseDevice(*device).message(),
                HasSubstr("is at the use of device cpu, rank 2 at the use of device sim"));
    EXPECT_FALSE(group.sums_device_memory());
  });
  RunRanksOn("nccl", 2, kPatienceMs, [&](ProcessGroup& group) {
    const auto device = NewCpuDevice({});
    EXPECT_EQ(group.UseDevice(*device).code(), absl::StatusCode::kInvalidArgument);
  });
}

// A rank goes away in the middle of sums in device memory; what the others then free must not be
// worked on any more (seen by ASan).
TEST(ProcessGroupMemory, AfterAnAbortDeviceMemoryIsFree) {
  const absl::Status reason = absl::ResourceExhaustedError("out of paper");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int rank = 0; rank < 3; ++rank) {
      devices.push_back(NewSimDevice({.copy_bytes_per_s = 1e9, .delay_seed = seed}));
    }
    RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
      Device& device = *devices[group.rank()];
      ASSERT_TRUE(group.UseDevice(device).ok());
      constexpr int64_t kCount = 1'000'000, kAtOnce = 4;
      const Buffer memory =
          *Buffer::Allocate(device, MemoryKind::kDevice, kAtOnce * kCount * sizeof(float));
      std::memset(memory.data(), 0, memory.bytes());
      const FakeEvent never;  // lest the last is done before the abort
      ProcessGroup::Ticket ticket = 0;
      for (int i = 0; i < 50; ++i) {
        void* const bucket = memory.data() + i % kAtOnce * kCount * sizeof(float);
        ticket = group.Submit("bucket", {bucket, {kCount}, DType::kF32}, i < 49 ? nullptr : &never,
                              MemoryKind::kDevice);
        if (i == 0 && group.rank() == 1) {
          ASSERT_TRUE(group.Wait(ticket).ok());
        }
      }
      if (group.rank() == 1) group.Abort(reason);
      EXPECT_EQ(group.Wait(ticket).status().code(), reason.code());
    });
  }
}

TEST(ProcessGroupMemory, MemoryThatOneRankAloneSharesIsAnError) {
  const struct {
    const char* algorithm;
    int ranks;
    const char* error;
  } cases[] = {{"shared", 2, "is shared on rank 0 and not on"},
               {"shared", 3, "is shared on rank 0 and not on"},
               {"ring", 2, "F32 \"odd\" by the ring in shared memory, rank"},
               {"ring", 3, "F32 \"odd\" by the ring in shared memory, rank"}};
  for (const auto& [algorithm, ranks, error] : cases) {
    std::barrier shared(ranks);  // before one tells the others of its fault
    RunRanksOn(algorithm, ranks, kPatienceMs, [&, error = error](ProcessGroup& group) {
      constexpr int64_t kCount = 100'000;
      const auto memory = group.Share(kCount * sizeof(float));
      ASSERT_TRUE(memory.ok() && *memory != nullptr) << memory.status();
      shared.arrive_and_wait();
      std::vector<float> other(kCount);
      void* const data = group.rank() == 0 ? static_cast<void*>(*memory) : other.data();
      const auto sum = group.Wait(group.Submit("odd", {data, {kCount}, DType::kF32}, nullptr));
      EXPECT_THAT(sum.status().message(), HasSubstr(error));
    });
  }
}

// What is submitted goes on as its ranks submit more and wait, in any mix; a metric is waited for
// a step late.
TEST(ProcessGroupMemory, CallersDriveWhatRanksShare) {
  constexpr int kRanks = 3, kBuckets = 4, kSteps = 30;
  constexpr int64_t kCount = 7000;
  for (const char* algorithm : {"shared", "ring"}) {
    RunRanksOn(algorithm, kRanks, kPatienceMs, [&](ProcessGroup& group) {
      const auto memory = group.Share(kBuckets * kCount * sizeof(float));
      ASSERT_TRUE(memory.ok() && *memory != nullptr) << memory.status();
      auto* const arena = reinterpret_cast<float*>(*memory);
      std::minstd_rand random(group.rank() + 1);
      const auto linger = [&] {
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      };
      std::array<double, 2> metric = {};
      std::optional<ProcessGroup::Ticket> told;
      for (int step = 0; step < kSteps; ++step) {
        std::array<ProcessGroup::Ticket, kBuckets> tickets = {};
        for (int b = 0; b < kBuckets; ++b) {
          linger();
          const int64_t count = kCount - b * 1700;
          std::fill(arena + b * kCount, arena + b * kCount + count,
                    static_cast<float>(group.rank() + b + step));
          const Tensor bucket{arena + b * kCount, {count}, DType::kF32};
          tickets[b] =
              group.Submit("bucket", bucket, nullptr, MemoryKind::kPinnedHost, /*urgency=*/b);
        }
        linger();
        if (told.has_value()) {
          ASSERT_TRUE(group.Wait(*told).ok());
          EXPECT_EQ(metric[(step - 1) % 2], kRanks * (step - 1) + 3);
        }
        metric[step % 2] = group.rank() + step;
        told = group.Submit("metric", {&metric[step % 2], {1}, DType::kF64}, nullptr,
                            MemoryKind::kPinnedHost, kMostUrgent);
        for (int b = kBuckets - 1; b >= 0; --b) {
          linger();
          ASSERT_TRUE(group.Wait(tickets[b]).ok());
          const int64_t count = kCount - b * 1700;
          EXPECT_EQ(std::count(arena + b * kCount, arena + b * kCount + count,
                               static_cast<float>(kRanks * (b + step) + 3)),
                    count);
        }
      }
      ASSERT_TRUE(group.Wait(*told).ok());
      ASSERT_TRUE(group.Barrier().ok());
    });
  }
}

// A rank that has submitted its part, and does something else, holds up none that waits.
TEST(ProcessGroupMemory, TheThreadDrivesWhereItsCallerDoesNot) {
  for (const char* algorithm : {"shared", "ring"}) {
    std::barrier submitted(2), waited(2);
    RunRanksOn(algorithm, 2, kPatienceMs, [&](ProcessGroup& group) {
      constexpr int64_t kCount = 300'000;
      const auto memory = group.Share(kCount * sizeof(float));
      ASSERT_TRUE(memory.ok() && *memory != nullptr) << memory.status();
      const Tensor tensor{*memory, {kCount}, DType::kF32};
      std::fill(tensor.as<float>(), tensor.as<float>() + kCount, 1.0f);
      if (group.rank() == 1) submitted.arrive_and_wait();
      const auto ticket = group.Submit("bucket", tensor, nullptr);
      if (group.rank() == 0) submitted.arrive_and_wait();
      if (group.rank() == 0) waited.arrive_and_wait();
      ASSERT_TRUE(group.Wait(ticket).ok());
      EXPECT_EQ(std::count(tensor.as<float>(), tensor.as<float>() + kCount, 2.0f), kCount);
      if (group.rank() == 1) waited.arrive_and_wait();
      ASSERT_TRUE(group.Barrier().ok());
    });
  }
}

TEST(ProcessGroupMemory, SharesNoMemoryWithoutUseOrRoom) {
  for (const char* algorithm : {"direct", "shared"}) {
    for (const int ranks : {1, 2}) {
      RunRanksOn(algorithm, ranks, kPatienceMs, [&](ProcessGroup& group) {
        constexpr size_t kTooMuch = size_t{1} << 50;
        EXPECT_EQ(*group.Share(kTooMuch), nullptr);
        const bool useful = ranks > 1 && std::string_view(algorithm) == "shared";
        EXPECT_EQ(*group.Share(4) != nullptr, useful);
      });
    }
  }
  RunRanksOn("shared", 2, kPatienceMs, [](ProcessGroup& group) {
    EXPECT_EQ(group.Share(group.rank() == 0 ? 8 : 16).status().code(),
              absl::StatusCode::kFailedPrecondition);
  });
}

TEST(ProcessGroupMemory, AllRanksSeeTheOneCopy) {
  for (const char* algorithm : {"naive", "shared"}) {
    for (const int ranks : {2, 3}) {
      RunRanksOn(algorithm, ranks, kPatienceMs, [&](ProcessGroup& group) {
        constexpr int kCount = 3000;  // of several pages
        const auto memory = group.ShareOne(kCount * sizeof(int) * ranks);
        ASSERT_TRUE(memory.ok() && *memory != nullptr) << memory.status();
        auto* const values = reinterpret_cast<int*>(*memory);
        EXPECT_EQ(std::count(values, values + kCount * ranks, 0), kCount * ranks);
        ASSERT_TRUE(group.Barrier().ok());
        int* const mine = values + kCount * group.rank();
        std::fill(mine, mine + kCount, group.rank() + 1);
        ASSERT_TRUE(group.Barrier().ok());
        for (int rank = 0; rank < ranks; ++rank) {
          const int* const its = values + kCount * rank;
          EXPECT_EQ(std::count(its, its + kCount, rank + 1), kCount);
        }
        EXPECT_NE(*group.ShareOne(8), *memory);
        EXPECT_EQ(*group.ShareOne(size_t{1} << 50), nullptr);
      });
    }
  }
  RunRanksOn("shared", 1, kPatienceMs,
             [](ProcessGroup& group) { EXPECT_EQ(*group.ShareOne(8), nullptr); });
}

// Mappings of files without a name.
int64_t Mapped() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:gyre") != std::string::npos;
  return count;
}

TEST(ProcessGroupMemory, IsGivenBackAndSharedAgain) {
  for (const char* algorithm : {"shared", "ring", "direct"}) {
    RunRanksOn(algorithm, 3, kPatienceMs, [&](ProcessGroup& group) {
      ASSERT_TRUE(group.Barrier().ok());
      const int64_t before = Mapped();
      ASSERT_TRUE(group.Barrier().ok());
      for (const int64_t count : {1000, 300'000, 1}) {
        EXPECT_NE(*group.ShareOne(8), nullptr);
        std::byte* const memory = *group.Share(static_cast<size_t>(count) * sizeof(float));
        std::vector<float> own(static_cast<size_t>(count));
        const Tensor tensor{
            memory != nullptr ? static_cast<void*>(memory) : own.data(), {count}, DType::kF32};
        std::fill_n(tensor.as<float>(), count, 1.0f);
        ASSERT_TRUE(group.Wait(group.Submit("bucket", tensor, nullptr)).ok());
        EXPECT_EQ(std::count(tensor.as<float>(), tensor.as<float>() + count, 3.0f), count);
        ASSERT_TRUE(group.Unshare().ok() && group.Barrier().ok());
        EXPECT_EQ(Mapped(), before);
        ASSERT_TRUE(group.Barrier().ok());
      }
    });
  }
}

// Ranks come together for it with nothing left of theirs that another may wait for.
TEST(ProcessGroupMemory, SharesMemoryOnceWhatCameBeforeIsDone) {
  // Far more polls than there are passes until the ranks have agreed on the memory's size.
  class Late final : public Event {
   public:
    absl::StatusOr<bool> Done() const override { return ++polls_ > 3000; }
    absl::Status Synchronize() const override { return absl::UnimplementedError("only polled"); }

   private:
    mutable int polls_ = 0;
  };
  RunRanksOn("shared", 3, kPatienceMs, [](ProcessGroup& group) {
    std::vector<float> data(1000, 1.0f);
    const Late late;
    const auto ticket = group.Submit("late", View(data), &late);
    EXPECT_NE(*group.Share(4096), nullptr);
    EXPECT_EQ(*group.Done(ticket), true);
    EXPECT_TRUE(group.Wait(ticket).ok());
  });
}

}  // namespace
}  // namespace gyre
