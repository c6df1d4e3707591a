// Collectives over ranks that are threads: every algorithm, rank count, length and dtype against
// the sum in the documented order, bit for bit, in host memory, in memory that the ranks share and
// in that of a sim device.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/distributed/collectives/subject.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

// Device memory of both devices is the host's.
class Memory {
 public:
  Memory(Subject& subject, size_t bytes)
      : buffer_(*Buffer::Allocate(*subject.device, MemoryKind::kDevice, bytes)),
        data_(buffer_.data()) {
    if (subject.arenas.empty()) return;
    GYRE_CHECK(bytes <= subject.arenas[0]->bytes(0));
    data_ = subject.arenas[0]->own();
  }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Buffer buffer_;
  std::byte* data_;
};

template <typename T>
std::vector<std::vector<T>> RandomInputs(int ranks, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
  for (auto& input : inputs) {
    for (T& x : input) x = T(std::ldexp(static_cast<AccumulateType<T>>(random()), -63) - 1);
  }
  return inputs;
}

template <typename T>
std::vector<T> Added(const std::vector<T>& a, const std::vector<T>& b) {
  using A = AccumulateType<T>;
  std::vector<T> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = T(A(a[i]) + A(b[i]));
  return sum;
}

// The sum over ranks in the order that the algorithm documents.
template <typename T>
std::vector<T> Expected(const std::string& algorithm, std::vector<std::vector<T>> inputs) {
  using A = AccumulateType<T>;
  const int ranks = static_cast<int>(inputs.size());
  const int64_t count = static_cast<int64_t>(inputs[0].size());
  if (algorithm.ends_with("doubling")) {
    // What rank counts beyond a power of two hand over is added first; then neighbours, or those
    // that are farthest apart.
    const size_t whole = std::bit_floor(inputs.size());
    for (size_t i = whole; i < inputs.size(); ++i) {
      inputs[i - whole] = Added(inputs[i - whole], inputs[i]);
    }
    inputs.resize(whole);
    for (size_t half; (half = inputs.size() / 2) > 0; inputs.resize(half)) {
      for (size_t k = 0; k < half; ++k) {
        inputs[k] = algorithm == "recursive_doubling" ? Added(inputs[2 * k], inputs[2 * k + 1])
                                                      : Added(inputs[k], inputs[k + half]);
      }
    }
    return inputs[0];
  }
  if (algorithm == "auto") {
    return Expected(Choices().Choose(static_cast<size_t>(count) * sizeof(T)), std::move(inputs));
  }
  if (algorithm.starts_with("hierarchical")) {
    // In each host, rounded; then the hosts.
    const std::vector<int> hosts = HostsOf(algorithm, ranks);
    std::vector<std::vector<T>> sums;
    for (int r = 0; r < ranks;) {
      std::vector<std::vector<T>> host;
      for (const int h = hosts[r]; r < ranks && hosts[r] == h; ++r) host.push_back(inputs[r]);
      sums.push_back(Expected("shared", std::move(host)));
    }
    return Expected("shared", std::move(sums));
  }
  std::vector<T> sum(count);
  for (int part = 0; part < ranks; ++part) {
    // Part by part, from the rank after its owner; the others: in rank order, rounded once.
    const ElementRange range = EqualPart(count, ranks, part);
    const bool ring = Base(algorithm) == "ring";
    const int first = ring ? (part + 1) % ranks : 0;
    for (int64_t i = range.begin; i < range.end; ++i) {
      A total = A(inputs[first][i]);
      for (int k = 1; k < ranks; ++k) {
        total += A(inputs[(first + k) % ranks][i]);
        if (ring) total = A(T(total));
      }
      sum[i] = T(total);
    }
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
  const T guard_value = T(-7.25f);
  const int ranks = static_cast<int>(inputs.size());
  Outcome<T> outcome{inputs, std::vector<double>(ranks), std::vector<size_t>(ranks)};
  RunRanksOf(algorithm, ranks, [&](Communicator& transport) {
    DelayingCommunicator delaying(transport, delay_seed);
    CheckingCommunicator checking(delay_seed == 0 ? transport
                                                  : static_cast<Communicator&>(delaying));
    CountingCommunicator communicator(checking);
    const int rank = communicator.rank();
    const int64_t count = static_cast<int64_t>(inputs[rank].size());
    const size_t bytes = (count + 2 * kGuard) * sizeof(T);
    const auto subject = NewSubject(algorithm, communicator, delay_seed, bytes);
    const size_t before = communicator.bytes_sent();
    const Memory holder(*subject, bytes);
    T* const memory = holder.as<T>();
    T* const data = memory + kGuard;
    std::fill(memory, data + count + kGuard, guard_value);
    std::copy(inputs[rank].begin(), inputs[rank].end(), data);
    ASSERT_EQ(Operate(*subject, Operation::kAllreduce, {data, {count}, kDTypeOf<T>},
                      &outcome.results[rank]),
              absl::OkStatus());
    outcome.sums[rank].assign(data, data + count);
    outcome.bytes_sent[rank] = communicator.bytes_sent() - before;
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
    EXPECT_NEAR(outcome.results[rank], squares, 1e-12 * squares);
    EXPECT_EQ(outcome.results[rank], outcome.results[0]);
  }

  // No order of n - 1 additions strays further from the exact sum.
  constexpr double kEpsilon = sizeof(T) == 8 ? 0x1p-52 : sizeof(T) == 4 ? 0x1p-23 : 0x1p-7;
  for (int64_t i = 0; i < count; i += 1 + count / 1000) {
    long double exact = 0, magnitude = 0;
    for (const auto& input : inputs) {
      exact += input[i];
      magnitude += std::abs(static_cast<double>(input[i]));
    }
    EXPECT_LE(std::abs(expected[i] - exact), ranks * kEpsilon * magnitude);
  }

  const double bytes = static_cast<double>(count) * sizeof(T);
  const auto& sent = outcome.bytes_sent;
  const bool even = algorithm == "ring" || algorithm == "device_ring" || algorithm == "direct";
  const double measured =
      even ? static_cast<double>(std::accumulate(sent.begin(), sent.end(), size_t{0})) / ranks
           : static_cast<double>(*std::max_element(sent.begin(), sent.end()));
  if (algorithm == "halving_doubling") return;        // parts differ by an element a round
  if (algorithm.starts_with("hierarchical")) return;  // and hosts by a rank
  if (algorithm == "auto") return;                    // has none of its own
  if (algorithm == "ring_in_place" && ranks > 1) {    // notes, each of 256 KB or a chunk's end
    EXPECT_LE(measured, 16 + 8 * (2 * ranks - 3) * (2 + bytes / ranks / (256 << 10)));
    return;
  }
  EXPECT_NEAR(AllreduceBytesSent(Base(algorithm), bytes, ranks, /*hosts=*/1), measured,
              1e-9 * measured);
}

class AllreduceTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  const std::string algorithm_ = std::get<0>(GetParam());
  const int ranks_ = std::get<1>(GetParam());
};

TEST_P(AllreduceTest, SumsEveryLength) {
  for (const int64_t count : {0, 1, ranks_ - 1, ranks_, ranks_ + 1, 37, 20'000}) {
    ExpectSums<float>(algorithm_, ranks_, count, 0);
    ExpectSums<double>(algorithm_, ranks_, count, 0);
    ExpectSums<Half>(algorithm_, ranks_, count, 0);
    ExpectSums<BFloat16>(algorithm_, ranks_, count, 0);
  }
}

// Several segments of 32768 F32 in each rank's part; the last one of some one element shorter, or
// empty.
TEST_P(AllreduceTest, SumsManySegments) {
  ExpectSums<float>(algorithm_, ranks_, ranks_ * 80'000 - 3, 0);
  if (ranks_ > 5) return;  // nothing new in other types
  ExpectSums<double>(algorithm_, ranks_, ranks_ * 16'384 + 1, 0);
  ExpectSums<Half>(algorithm_, ranks_, ranks_ * 66'000 + 1, 0);
  // Those of a device have 131072 F64.
  if (algorithm_ == "device_ring" && ranks_ <= 3) {
    ExpectSums<double>(algorithm_, ranks_, ranks_ * 131'072 * 5 + 1, 0);
  }
}

TEST_P(AllreduceTest, DelaysChangeNoBits) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    ExpectSums<float>(algorithm_, ranks_, 5 * seed, seed);
    ExpectSums<float>(algorithm_, ranks_, ranks_ * 33'000 + static_cast<int64_t>(seed), seed);
  }
}

// Sums a tensor whose result is known: element i is i * ranks + the sum of the ranks' numbers.
template <typename T>
void ExpectKnownSum(Subject& subject, const Communicator& communicator, int64_t count) {
  const int ranks = communicator.size();
  const Memory memory(subject, count * sizeof(T));
  T* const data = memory.as<T>();
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(i + communicator.rank());
  double result = 0;
  ASSERT_TRUE(Operate(subject, Operation::kAllreduce, {data, {count}, kDTypeOf<T>}, &result).ok());
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
  RunRanksOf(algorithm_, ranks_, [&](Communicator& transport) {
    DelayingCommunicator communicator(transport, 5);
    const auto subject = NewSubject(algorithm_, communicator, 5);
    std::mt19937 lengths(3);  // the same on every rank
    for (int operation = 0; operation < 24; ++operation) {
      const int64_t count = operation % 8 == 0 ? lengths() % 100'000 : lengths() % 100;
      ExpectKnownSum<float>(*subject, communicator, count);
      ExpectKnownSum<double>(*subject, communicator, count / 2);
    }
  });
}

TEST_P(AllreduceTest, FindsWhatIsNotFinite) {
  std::mt19937_64 random(11);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t count : {1, 10'000}) {
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

// Reduce-scatter leaves each rank its part of the sum, allgather then gives all of it to all.
TEST_P(AllreduceTest, HalvesMakeTheWhole) {
  if (algorithm_ == "naive" || algorithm_.ends_with("doubling") ||
      algorithm_.starts_with("hierarchical")) {
    GTEST_SKIP() << "sums whole tensors only";
  }
  for (const int64_t count : {0, 1, ranks_ - 1, 37, 5000, ranks_ * 90'000 - 1}) {
    const auto inputs = RandomInputs<float>(ranks_, count, count);
    const std::vector<float> expected =
        Expected(algorithm_ == "auto" ? "direct" : algorithm_, inputs);
    RunRanks(ranks_, [&](Communicator& transport) {
      DelayingCommunicator communicator(transport, count % 7);
      const auto subject = NewSubject(algorithm_, communicator, 0, (count + 1) * sizeof(double));
      const Memory memory(*subject, count * sizeof(float));
      float* const data = memory.as<float>();
      const int rank = communicator.rank();
      std::copy(inputs[rank].begin(), inputs[rank].end(), data);
      const Tensor tensor{data, {count}, DType::kF32};
      double squares = 0;
      ASSERT_TRUE(Operate(*subject, Operation::kReduceScatter, tensor, &squares).ok());
      const ElementRange part = EqualPart(count, ranks_, rank);
      double exact = 0;
      for (int64_t i = 0; i < count; ++i) {
        if (i < part.begin || i >= part.end) {
          data[i] = -1;
          continue;
        }
        ASSERT_EQ(data[i], expected[i]) << i;
        exact += double{data[i]} * data[i];
      }
      EXPECT_NEAR(squares, exact, 1e-12 * exact);
      ASSERT_TRUE(Operate(*subject, Operation::kAllgather, tensor, &squares).ok());
      EXPECT_TRUE(SameBits(std::vector<float>(data, data + count), expected));
    });
  }
}

// A sanitizer sees all it can with three ranks.
const auto kRankCounts =
    testing::ValuesIn(kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 5, 8});

const std::string kSubjects[] = {
    "ring",   "ring_in_place",   "direct",       "halving_doubling",      "recursive_doubling",
    "shared", "shared_in_place", "hierarchical", "hierarchical_in_place", "auto",
    "naive",  "device_ring"};

INSTANTIATE_TEST_SUITE_P(All, AllreduceTest,
                         testing::Combine(testing::ValuesIn(kSubjects), kRankCounts),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

// Ranks of several hosts do not all see an arena: its bytes travel.
TEST(Ring, OfSeveralHostsGoesByMessages) {
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1}, std::vector{0, 1, 0, 1}}) {
    const int ranks = static_cast<int>(hosts.size());
    RunRanks(NewThreadCommunicators(ranks, kPatienceMs, hosts), [&](Communicator& transport) {
      CountingCommunicator communicator(transport);
      const auto subject = NewSubject("ring_in_place", communicator);
      const size_t before = communicator.bytes_sent();
      ExpectKnownSum<float>(*subject, communicator, ranks * 40'000);
      EXPECT_EQ(static_cast<double>(communicator.bytes_sent() - before),
                AllreduceBytesSent("ring", ranks * 160'000, ranks, /*hosts=*/2));
    });
  }
}

// Both trees, in segments of 256 KB: long tensors go down a chain, where nobody sends two copies.
TEST(Broadcast, GivesAllWhatTheRootHas) {
  constexpr int64_t kSegment = 256 << 10;
  for (const int ranks : kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 5, 8}) {
    const int copies = std::bit_width(static_cast<unsigned>(ranks - 1));
    const int chained = ranks == 8 ? 4 : 2;  // segments
    for (const int segments : {0, 1, 3, 6}) {
      const int64_t bytes = segments * kSegment - segments % 2;
      const auto content = [&](int rank) {
        std::string text(bytes + 1, '#');
        for (int64_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i % 251 + 31 * rank);
        return text;
      };
      for (const int root : {0, ranks - 1}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << bytes << " bytes from " << root);
        std::vector<size_t> sent(ranks);
        RunRanks(ranks, [&](Communicator& transport) {
          DelayingCommunicator delaying(transport, bytes + root);
          CheckingCommunicator checking(delaying);
          CountingCommunicator communicator(checking);
          const int rank = communicator.rank();
          const auto subject = NewSubject("auto", communicator);
          const size_t before = communicator.bytes_sent();
          std::string data = content(rank);
          double squares = 1;
          ASSERT_EQ(Operate(*subject, Operation::kBroadcast, {data.data(), {bytes}, DType::kU8},
                            &squares, root),
                    absl::OkStatus());
          EXPECT_TRUE(data == content(root));
          EXPECT_EQ(squares, 0);
          sent[rank] = communicator.bytes_sent() - before;
        });
        EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), int64_t{0}), (ranks - 1) * bytes);
        EXPECT_EQ(*std::max_element(sent.begin(), sent.end()),
                  (segments >= chained ? std::min(copies, 1) : copies) * bytes);
      }
    }
  }
}

// F32 that travels as halves: each input is rounded once, and so is the sum, whatever the ranks.
TEST(WireError, OfF32IsThatOfTwoRoundings) {
  const struct {
    DType wire;
    double bound;
  } cases[] = {{DType::kF16, 3.5e-4}, {DType::kBF16, 2.8e-3}};
  for (const auto& c : cases) {
    for (const int ranks : kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 8, 64}) {
      // The last of 3 ranks: more segments of 65536 halves than are under way at once.
      for (const int64_t count : {ranks - 1, 4096, ranks == 3 ? 3 * 65'536 * 5 + 1 : 37}) {
        const auto inputs = RandomInputs<float>(ranks, count, 1);
        std::vector<std::vector<float>> sums(ranks);
        std::vector<double> results(ranks);
        RunRanks(ranks, [&](Communicator& transport) {
          CheckingCommunicator checking(transport);
          CountingCommunicator communicator(checking);
          const auto subject = NewSubject("direct", communicator);
          subject->collective->CarryAs(c.wire);
          const int rank = communicator.rank();
          std::vector<float> data = inputs[rank];
          ASSERT_TRUE(Operate(*subject, Operation::kAllreduce, {data.data(), {count}, DType::kF32},
                              &results[rank])
                          .ok());
          sums[rank] = data;
          // Half of F32's, but for the partials; parts differ by an element.
          EXPECT_LE(static_cast<double>(communicator.bytes_sent()),
                    static_cast<double>((ranks - 1) * (2 * (count / ranks + 1) * 2 + 8)));
        });
        double difference = 0, exact_squares = 0, squares = 0;
        for (int64_t i = 0; i < count; ++i) {
          double exact = 0;
          for (const auto& input : inputs) exact += input[i];
          difference += (sums[0][i] - exact) * (sums[0][i] - exact);
          exact_squares += exact * exact;
          squares += double{sums[0][i]} * sums[0][i];
        }
        if (count >= 1000) {
          EXPECT_LE(std::sqrt(difference / exact_squares), c.bound) << ranks;
        }
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_TRUE(SameBits(sums[rank], sums[0])) << "rank " << rank;
          EXPECT_NEAR(results[rank], squares, 1e-12 * squares);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gyre
