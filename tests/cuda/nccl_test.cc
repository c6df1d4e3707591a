// Sums by NCCL, over a fake of it: the numbers, the rules of its calls, its errors, and what ends a
// sum that does not.  The measure runs on a sim device.

#include "distributed/collectives/algorithms/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/cuda/fakes/fake_nccl.h"
#include "tests/distributed/rank_threads.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// One rank's end of a test.
struct Rank {
  Communicator& communicator;
  Device& device;
  Collective& collective;
  int64_t operations = 0;

  template <typename T>
  Buffer NewMemory(const std::vector<T>& values) {
    Buffer memory = *Buffer::Allocate(device, MemoryKind::kDevice, values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(memory.data(), values.data(), memory.bytes());
    return memory;
  }

  absl::Status Sum(Tensor inout, double* result) {
    const absl::Status status =
        collective.Start(Claim::Of(operations++, "test"), Operation::kAllreduce, inout);
    return status.ok() ? DriveToEnd([&] { return collective.Progress(result); }) : status;
  }
  // Of one element on each rank.
  absl::Status SumOne() {
    const Buffer memory = NewMemory(std::vector<float>{1});
    double result = 0;
    const absl::Status status = Sum({memory.data(), {1}, DType::kF32}, &result);
    if (!status.ok()) collective.Abandon();  // before the memory goes
    return status;
  }
};

class NcclTest : public testing::Test {
 protected:
  // On a thread a rank; a rank leaves when all have come to the end of `body`, as a program's do.
  void RunNccl(int ranks, int64_t timeout_ms, const std::function<void(Rank&)>& body) {
    std::atomic<int> running = ranks;
    RunRanks(NewThreadCommunicators(ranks, timeout_ms), [&](Communicator& communicator) {
      const auto device =
          NewSimDevice({.delay_seed = 3 + static_cast<uint64_t>(communicator.rank())});
      const auto allreduce = NewNccl(nccl_.table(), communicator, kFirstOperationTag, *device);
      ASSERT_TRUE(allreduce.ok()) << allreduce.status();
      Rank rank{communicator, *device, **allreduce};
      body(rank);
      --running;
      while (running > 0) std::this_thread::yield();
    });
    EXPECT_EQ(nccl_.Alive(), 0);
  }

  FakeNccl nccl_;
};

template <typename T>
void ExpectSum(Rank& rank, int64_t count, uint64_t seed) {
  SCOPED_TRACE(count);
  const int ranks = rank.communicator.size();
  std::vector<T> sum(count), mine;
  for (int r = 0; r < ranks; ++r) {
    std::mt19937_64 random(seed * 100 + r);
    std::vector<T> values(count);
    for (T& x : values) x = std::ldexp(static_cast<T>(random()), -63) - 1;
    for (int64_t i = 0; i < count; ++i) sum[i] = r == 0 ? values[i] : sum[i] + values[i];
    if (r == rank.communicator.rank()) mine = values;
  }
  long double exact_squares = 0;
  for (const T x : sum) exact_squares += static_cast<long double>(x) * x;
  const double squares = static_cast<double>(exact_squares);

  const Buffer memory = rank.NewMemory(mine);
  double result = 0;
  ASSERT_EQ(rank.Sum({memory.data(), {count}, kDTypeOf<T>}, &result), absl::OkStatus());
  EXPECT_TRUE(count == 0 || std::memcmp(memory.data(), sum.data(), memory.bytes()) == 0);
  EXPECT_NEAR(result, squares, 1e-13 * squares);
}

TEST_F(NcclTest, SumsEveryLength) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    RunNccl(ranks, kPatienceMs, [&](Rank& rank) {
      for (const int64_t count : {0, 1, ranks - 1, 37, 1001, 100'003}) {
        ExpectSum<float>(rank, count, count + ranks);
        ExpectSum<double>(rank, count, count + ranks);
      }
    });
    EXPECT_EQ(nccl_.Calls("ncclCommAbort"), 0);  // they left in order
  }
}

TEST_F(NcclTest, FindsWhatIsNotFinite) {
  RunNccl(2, kPatienceMs, [&](Rank& rank) {
    // Each rank's own values are finite.
    const Buffer memory = rank.NewMemory(std::vector<float>(700, 3e38f));
    double result = 0;
    ASSERT_TRUE(rank.Sum({memory.data(), {700}, DType::kF32}, &result).ok());
    EXPECT_FALSE(std::isfinite(result));
    EXPECT_EQ(
        rank.collective
            .Start(Claim::Of(9, "test"), Operation::kAllreduce, {memory.data(), {7}, DType::kI32})
            .code(),
        absl::StatusCode::kInvalidArgument);
  });
}

TEST_F(NcclTest, SumsTheDevicesMemory) {
  nccl_.is_device_memory = [](const void*, size_t) { return false; };
  RunNccl(2, kPatienceMs, [&](Rank& rank) {
    EXPECT_THAT(rank.SumOne().message(), HasSubstr("ncclAllReduce wants fake->is_device_memory"));
  });
}

TEST_F(NcclTest, RefusesRanksOnOneGpu) {
  nccl_.gpu_of_rank = [](int rank) { return rank / 2; };
  RunNccl(3, kPatienceMs, [&](Rank& rank) {
    EXPECT_THAT(rank.SumOne().message(),
                AllOf(HasSubstr("ncclCommInitRankConfig"),
                      HasSubstr("rank 1 and rank 0 both on CUDA device 0"),
                      HasSubstr("where ranks share one, use allreduce \"ring\"")));
  });
}

// Rank 0's call fails; the others are told so by nobody, and end after the time limit.
TEST_F(NcclTest, EveryCodeIsLookedAt) {
  for (const auto& [failing, call] :
       {std::pair("ncclGetUniqueId", 1), std::pair("ncclCommInitRankConfig", 1),
        std::pair("ncclCommGetAsyncError", 1), std::pair("ncclAllReduce", 1),
        std::pair("ncclAllReduce", 2)}) {
    SCOPED_TRACE(failing);
    nccl_.FailCall(failing, call);
    RunNccl(3, 100, [&, failing = failing](Rank& rank) {
      absl::Status status;
      for (int i = 0; i < 2 && status.ok(); ++i) status = rank.SumOne();
      if (rank.communicator.rank() == 0) {
        EXPECT_THAT(status.ToString(),
                    AllOf(StartsWith("INTERNAL: "), HasSubstr(failing), HasSubstr("internal error"),
                          HasSubstr("was told to fail")));
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      }
    });
  }
}

TEST_F(NcclTest, ErrorDuringASumReachesAllRanks) {
  nccl_.lose_rank_in_sum = 2;
  RunNccl(3, kPatienceMs, [&](Rank& rank) {
    EXPECT_TRUE(rank.SumOne().ok());
    EXPECT_THAT(rank.SumOne().message(),
                AllOf(HasSubstr("ncclAllReduce"), HasSubstr("connection closed by a remote peer")));
  });
  EXPECT_EQ(nccl_.Calls("ncclCommDestroy"), 0);
  EXPECT_EQ(nccl_.Calls("ncclCommAbort"), 3);
}

TEST_F(NcclTest, UnequalCountsAreAnError) {
  RunNccl(2, kPatienceMs, [&](Rank& rank) {
    const int64_t count = 10 + rank.communicator.rank();
    const Buffer memory = rank.NewMemory(std::vector<float>(count));
    double result = 0;
    EXPECT_THAT(rank.Sum({memory.data(), {count}, DType::kF32}, &result).message(),
                HasSubstr("ranks sum different counts"));
  });
}

TEST_F(NcclTest, TimeLimitEndsASumThatHangs) {
  nccl_.hang_sum = 2;
  RunNccl(2, 100, [&](Rank& rank) {
    EXPECT_TRUE(rank.SumOne().ok());
    EXPECT_EQ(rank.SumOne(), absl::UnavailableError("NCCL has waited for other ranks for 100 ms"));
  });
}

// As the process group does when it is told to abort.
TEST_F(NcclTest, AbandonEndsASumThatHangs) {
  nccl_.hang_sum = 1;
  RunNccl(3, kPatienceMs, [&](Rank& rank) {
    const Buffer memory = rank.NewMemory(std::vector<float>(1000));
    ASSERT_TRUE(rank.collective
                    .Start(Claim::Of(9, "test"), Operation::kAllreduce,
                           {memory.data(), {1000}, DType::kF32})
                    .ok());
    double result = 0;
    while (nccl_.Calls("ncclAllReduce") < 3) ASSERT_TRUE(rank.collective.Progress(&result).ok());
    for (int pass = 0; pass < 100; ++pass) {
      EXPECT_EQ(*rank.collective.Progress(&result), Advance::kWaiting);
    }
    rank.collective.Abandon();
  });
  EXPECT_EQ(nccl_.Calls("ncclCommAbort"), 3);
}

}  // namespace
}  // namespace gyre
