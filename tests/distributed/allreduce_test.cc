// Sums over ranks that are threads: every algorithm, rank count, length and dtype against the sum
// in the documented order, bit for bit, in host memory and in that of a sim device.

#include "distributed/allreduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/distributed/rank_threads.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

// An algorithm where it works: "device_ring" is the ring in the memory of a sim device.
struct Subject {
  std::unique_ptr<Device> device;
  std::unique_ptr<Allreduce> allreduce;
};

// `delay_seed`: of the device's streams; 0: no delays.
Subject NewSubject(const std::string& algorithm, Communicator& communicator,
                   uint64_t delay_seed = 0) {
  Subject subject;
  absl::StatusOr<std::unique_ptr<Allreduce>> allreduce;
  if (algorithm == "device_ring") {
    subject.device = NewSimDevice({.delay_seed = delay_seed});
    allreduce = NewDeviceAllreduce("ring", communicator, *subject.device);
  } else {
    subject.device = NewCpuDevice({});
    allreduce = NewAllreduce(algorithm, communicator);
  }
  GYRE_CHECK(allreduce.ok() && *allreduce != nullptr);
  subject.allreduce = *std::move(allreduce);
  return subject;
}

// Device memory of both devices is the host's.
template <typename T>
Buffer NewMemory(Subject& subject, int64_t count) {
  return *Buffer::Allocate(*subject.device, MemoryKind::kDevice, count * sizeof(T));
}

template <typename T>
std::vector<std::vector<T>> RandomInputs(int ranks, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
  for (auto& input : inputs) {
    for (T& x : input) x = std::ldexp(static_cast<T>(random()), -63) - 1;
  }
  return inputs;
}

// The rank that element i's addition begins with, then upwards modulo ranks.
int FirstRank(const std::string& algorithm, int64_t i, int64_t count, int ranks) {
  if (algorithm == "naive") return 0;
  const int64_t base = count / ranks, longer = count % ranks;
  const int64_t in_longer = longer * (base + 1);
  const int64_t chunk =
      i < in_longer ? i / (base + 1) : longer + (i - in_longer) / std::max<int64_t>(base, 1);
  return static_cast<int>((chunk + 1) % ranks);
}

template <typename T>
std::vector<T> Expected(const std::string& algorithm, const std::vector<std::vector<T>>& inputs) {
  const int ranks = static_cast<int>(inputs.size());
  const int64_t count = static_cast<int64_t>(inputs[0].size());
  std::vector<T> sum(count);
  for (int64_t i = 0; i < count; ++i) {
    const int first = FirstRank(algorithm, i, count, ranks);
    sum[i] = inputs[first][i];
    for (int k = 1; k < ranks; ++k) sum[i] += inputs[(first + k) % ranks][i];
  }
  return sum;
}

template <typename T>
struct Outcome {
  std::vector<std::vector<T>> sums;  // by rank
  std::vector<double> results;
  std::vector<size_t> bytes_sent;
};

// `delay_seed`: of messages and devices; 0: no delays.
template <typename T>
Outcome<T> Reduce(const std::string& algorithm, const std::vector<std::vector<T>>& inputs,
                  uint64_t delay_seed = 0) {
  constexpr int64_t kGuard = 16;
  const T guard_value = T(-7.25);
  const int ranks = static_cast<int>(inputs.size());
  Outcome<T> outcome{inputs, std::vector<double>(ranks), std::vector<size_t>(ranks)};
  RunRanks(ranks, [&](Communicator& transport) {
    DelayingCommunicator delaying(transport, delay_seed);
    CheckingCommunicator checking(delay_seed == 0 ? transport
                                                  : static_cast<Communicator&>(delaying));
    CountingCommunicator communicator(checking);
    const int rank = communicator.rank();
    const int64_t count = static_cast<int64_t>(inputs[rank].size());
    Subject subject = NewSubject(algorithm, communicator, delay_seed);
    const Buffer buffer = NewMemory<T>(subject, count + 2 * kGuard);
    T* const memory = reinterpret_cast<T*>(buffer.data());
    T* const data = memory + kGuard;
    std::fill(memory, data + count + kGuard, guard_value);
    std::copy(inputs[rank].begin(), inputs[rank].end(), data);
    ASSERT_TRUE(subject.allreduce->Start({data, {count}, kDTypeOf<T>}).ok());
    const absl::Status status =
        DriveToEnd([&] { return subject.allreduce->Progress(&outcome.results[rank]); });
    ASSERT_TRUE(status.ok()) << status;
    outcome.sums[rank].assign(data, data + count);
    outcome.bytes_sent[rank] = communicator.bytes_sent();
    for (int64_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(memory[i], guard_value);
      ASSERT_EQ(data[count + i], guard_value);
    }
  });
  return outcome;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
void ExpectSums(const std::string& algorithm, int ranks, int64_t count, uint64_t delay_seed) {
  SCOPED_TRACE(algorithm + ", " + std::to_string(ranks) + " ranks, " + std::to_string(count) +
               " elements of " + std::to_string(sizeof(T)) + " bytes");
  const auto inputs = RandomInputs<T>(ranks, count, 17 * ranks + count);
  const std::vector<T> expected = Expected(algorithm, inputs);
  long double exact_squares = 0;
  for (const T x : expected) exact_squares += static_cast<long double>(x) * x;
  const double squares = static_cast<double>(exact_squares);

  const Outcome<T> outcome = Reduce(algorithm, inputs, delay_seed);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(SameBits(outcome.sums[rank], expected)) << "rank " << rank;
    EXPECT_NEAR(outcome.results[rank], squares, 1e-13 * squares);
    EXPECT_EQ(outcome.results[rank], outcome.results[0]);
  }

  // No order of n - 1 additions strays further from the exact sum.
  for (int64_t i = 0; i < count; i += 1 + count / 1000) {
    long double exact = 0, magnitude = 0;
    for (const auto& input : inputs) {
      exact += input[i];
      magnitude += std::abs(input[i]);
    }
    const long double bound = (ranks - 1) * std::numeric_limits<T>::epsilon() * magnitude;
    EXPECT_LE(std::abs(expected[i] - exact), bound);
  }

  const double bytes = static_cast<double>(count) * sizeof(T);
  const auto& sent = outcome.bytes_sent;
  const double measured =
      algorithm == "naive"
          ? static_cast<double>(*std::max_element(sent.begin(), sent.end()))
          : static_cast<double>(std::accumulate(sent.begin(), sent.end(), size_t{0})) / ranks;
  const std::string name = algorithm == "device_ring" ? "ring" : algorithm;
  EXPECT_NEAR(AllreduceBytesSent(name, bytes, ranks), measured, 1e-9 * measured);
}

class AllreduceTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  const std::string algorithm_ = std::get<0>(GetParam());
  const int ranks_ = std::get<1>(GetParam());
};

TEST_P(AllreduceTest, SumsEveryLength) {
  for (const int64_t count : {0, 1, ranks_ - 1, ranks_, ranks_ + 1, 37, 1001, 65536}) {
    ExpectSums<float>(algorithm_, ranks_, count, 0);
    ExpectSums<double>(algorithm_, ranks_, count, 0);
  }
}

// Several segments of 32768 F32 in each chunk; the last one of some chunks one element shorter, or
// empty.
TEST_P(AllreduceTest, SumsManySegments) {
  for (const int64_t count : {ranks_ * 32768 * 3, ranks_ * 32768 + 1, ranks_ * 80'000 - 3}) {
    ExpectSums<float>(algorithm_, ranks_, count, 0);
  }
  ExpectSums<double>(algorithm_, ranks_, ranks_ * 40'001 + 1, 0);
  // Those of a device have 131072 F64.
  if (algorithm_ == "device_ring" && ranks_ <= 3)
    ExpectSums<double>(algorithm_, ranks_, ranks_ * 131'072 * 5 + 1, 0);
}

TEST_P(AllreduceTest, DelaysChangeNoBits) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    ExpectSums<float>(algorithm_, ranks_, 5 * seed, seed);
    ExpectSums<float>(algorithm_, ranks_, ranks_ * 33'000 + static_cast<int64_t>(seed), seed);
  }
}

// Sums a tensor whose result is known: element i is i * ranks + the sum of the ranks' numbers.
template <typename T>
void ExpectKnownSum(Subject& subject, const Communicator& communicator, int64_t count) {
  const int ranks = communicator.size();
  const Buffer memory = NewMemory<T>(subject, count);
  T* const data = reinterpret_cast<T*>(memory.data());
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(i + communicator.rank());
  ASSERT_TRUE(subject.allreduce->Start({data, {count}, kDTypeOf<T>}).ok());
  double result = 0;
  ASSERT_TRUE(DriveToEnd([&] { return subject.allreduce->Progress(&result); }).ok());
  double squares = 0;
  const T ranks_summed = static_cast<T>(ranks * (ranks - 1) / 2);
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(data[i], static_cast<T>(i * ranks) + ranks_summed);
    squares += double{data[i]} * data[i];
  }
  EXPECT_NEAR(result, squares, 1e-10 * squares);
}

// One object, operations of changing length and dtype, ranks not in step.
TEST_P(AllreduceTest, OneObjectServesManyOperations) {
  RunRanks(ranks_, [&](Communicator& transport) {
    DelayingCommunicator communicator(transport, 5);
    Subject subject = NewSubject(algorithm_, communicator, 5);
    std::mt19937 lengths(3);  // the same on every rank
    for (int operation = 0; operation < 40; ++operation) {
      const int64_t count = operation % 8 == 0 ? lengths() % 100'000 : lengths() % 100;
      ExpectKnownSum<float>(subject, communicator, count);
      ExpectKnownSum<double>(subject, communicator, count / 2);
    }
  });
}

// An odd F32 chunk sizes the staging first; the F64 after it must still be aligned (seen by UBSan).
TEST_P(AllreduceTest, StagingFitsAWiderType) {
  RunRanks(ranks_, [&](Communicator& communicator) {
    Subject subject = NewSubject(algorithm_, communicator);
    ExpectKnownSum<float>(subject, communicator, ranks_ * 75);
    ExpectKnownSum<double>(subject, communicator, ranks_ * 7);
  });
}

TEST_P(AllreduceTest, FindsWhatIsNotFinite) {
  std::mt19937_64 random(11);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t count : {1, 37, 40'000}) {
      auto inputs = RandomInputs<float>(ranks_, count, 1);
      inputs[random() % ranks_][random() % count] = bad;
      const Outcome<float> outcome = Reduce(algorithm_, inputs);
      for (int rank = 0; rank < ranks_; ++rank) {
        EXPECT_FALSE(std::isfinite(outcome.results[rank]));
        EXPECT_TRUE(SameBits(outcome.sums[rank], outcome.sums[0]));
      }
    }
  }
}

TEST_P(AllreduceTest, LargeIsNotInfinite) {
  const std::vector<std::vector<double>> large(ranks_, std::vector<double>(9, 1e200));
  for (const double result : Reduce(algorithm_, large).results) EXPECT_TRUE(std::isinf(result));
  // The sum overflows, though no rank's own values do.
  const std::vector<std::vector<float>> larger(ranks_, std::vector<float>(9, 3e38f));
  for (const double result : Reduce(algorithm_, larger).results) {
    EXPECT_EQ(std::isfinite(result), ranks_ == 1);
  }
}

// A sanitizer sees all it can with three ranks.
const auto kRankCounts =
    testing::ValuesIn(kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 5, 8});

INSTANTIATE_TEST_SUITE_P(All, AllreduceTest,
                         testing::Combine(testing::Values("ring", "naive", "device_ring"),
                                          kRankCounts),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(NewAllreduce, NamesTheChoices) {
  auto communicators = NewThreadCommunicators(1, kPatienceMs);
  const auto allreduce = NewAllreduce("rign", *communicators[0]);
  EXPECT_EQ(allreduce.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(allreduce.status().message(),
            "no allreduce algorithm \"rign\"; there are: ring, naive, nccl");
}

TEST(NewAllreduce, RefusesIntegers) {
  auto communicators = NewThreadCommunicators(1, kPatienceMs);
  int64_t data = 1;
  for (const char* algorithm : {"ring", "naive", "device_ring"}) {
    Subject subject = NewSubject(algorithm, *communicators[0]);
    EXPECT_EQ(subject.allreduce->Start({&data, {1}, DType::kI64}).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CheckAllreduce, KnowsWhereEachWorks) {
  for (const char* algorithm : {"ring", "naive", "nccl"}) {
    EXPECT_TRUE(CheckAllreduce(algorithm, std::nullopt).ok());
    EXPECT_TRUE(CheckAllreduce(algorithm, DeviceKind::kCuda).ok());
  }
  EXPECT_TRUE(CheckAllreduce("ring", DeviceKind::kSim).ok());
  EXPECT_EQ(
      CheckAllreduce("nccl", DeviceKind::kSim).message(),
      "allreduce \"nccl\" sums the memory of GPUs, and this is --device=sim; use \"ring\", or "
      "--device=cuda");
  EXPECT_EQ(CheckAllreduce("", DeviceKind::kCpu).code(), absl::StatusCode::kInvalidArgument);
}

// Which device memory a sum needs is known before it is allocated.
TEST(DeviceRing, AllocatesWhatThePlanSays) {
  for (const int ranks : {1, 3}) {
    for (const int64_t count : {0, 1, 1000, 1'000'000}) {
      const size_t bytes = AllreduceDeviceBytes("ring", count * sizeof(float), ranks);
      for (const size_t missing : {0, 1}) {
        RunRanks(ranks, [&](Communicator& communicator) {
          std::vector<float> data(count);  // not the device's, to leave it the rest
          const auto device = NewSimDevice({.capacity_bytes = bytes - missing});
          auto allreduce = NewDeviceAllreduce("ring", communicator, *device);
          absl::Status status = allreduce.status();
          if (status.ok()) status = (*allreduce)->Start({data.data(), {count}, DType::kF32});
          EXPECT_EQ(status.code(),
                    missing == 0 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted)
              << ranks << " ranks, " << count << " elements";
        });
      }
    }
  }
}

TEST(DeviceRing, OnlyWhereMessagesReachTheDevice) {
  class HostOnly final : public WrappedCommunicator {
   public:
    using WrappedCommunicator::WrappedCommunicator;
    bool moves_device_memory(DeviceKind) const override { return false; }
  };
  const auto communicators = NewThreadCommunicators(1, kPatienceMs);
  HostOnly host_only(*communicators[0]);
  const auto device = NewSimDevice({});
  EXPECT_EQ(*NewDeviceAllreduce("ring", host_only, *device), nullptr);
  EXPECT_EQ(*NewDeviceAllreduce("naive", *communicators[0], *device), nullptr);
  EXPECT_TRUE(communicators[0]->moves_device_memory(DeviceKind::kSim));
  EXPECT_FALSE(communicators[0]->moves_device_memory(DeviceKind::kCuda));
}

// Without the agreement that comes first on the communication thread: an error, not a crash.
TEST(Ring, UnequalLengthsFail) {
  RunRanks(NewThreadCommunicators(3, 300), [](Communicator& communicator) {
    std::vector<float> data(communicator.rank() == 1 ? 100'000 : 99'000, 1.0f);
    auto allreduce = NewAllreduce("ring", communicator);
    ASSERT_TRUE(allreduce.ok());
    ASSERT_TRUE(
        (*allreduce)->Start({data.data(), {static_cast<int64_t>(data.size())}, DType::kF32}).ok());
    double result = 0;
    EXPECT_FALSE(DriveToEnd([&] { return (*allreduce)->Progress(&result); }).ok());
  });
}

}  // namespace
}  // namespace gyre
