#include "engine/runtime/parallel/parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "tests/runtime/instruction_sets.h"
#include "tests/runtime/monoid_check.h"
#include "tests/runtime/scatter_case.h"

namespace gyre {
namespace {

// Around the sizes at which the loops change shape: lanes, pieces, blocks, and the grain.
const int64_t kFewSizes[] = {0, 1, 2, 3, 15, 16, 17, 33, 127, 128, 129};
const int64_t kManySizes[] = {0, 1, 255, 256, 257, 1000, 4095, 4096, 4097, 8192, 8193, 12301};

struct Visit {
  int* visits;
  HOST_DEVICE void operator()(int64_t i) const { ++visits[i]; }
};

// Sums of doubles; counts what it loads and stores.
struct Sum {
  using Value = double;
  const double* x;
  double* y;
  int* loads;   // [rows, columns]
  int* stores;  // [results]
  int64_t columns;

  HOST_DEVICE Value Identity() const { return 0; }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    ++loads[row * columns + column];
    return x[row * columns + column];
  }
  HOST_DEVICE Value Combine(Value a, Value b) const { return a + b; }
  HOST_DEVICE void Store(int64_t i, Value v) const {
    y[i] = v;
    ++stores[i];
  }
};

// x -= the sum of its row / 2.
struct SubtractHalfSum {
  using Value = double;
  double* x;
  int64_t columns;

  HOST_DEVICE Value Identity() const { return 0; }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const { return x[row * columns + column]; }
  HOST_DEVICE Value Combine(Value a, Value b) const { return a + b; }
  HOST_DEVICE Value Finish(Value v) const { return v / 2; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, Value v) const {
    x[row * columns + column] -= v;
  }
};

// The first of the largest values: a Value of two fields, ties broken by position.
struct ArgMax {
  struct Value {
    double value = -std::numeric_limits<double>::infinity();
    int64_t index = std::numeric_limits<int64_t>::max();
    friend bool operator==(const Value&, const Value&) = default;
  };
  const double* x;
  int64_t* y;
  int64_t columns;
  bool over_rows;  // the position is the row

  HOST_DEVICE Value Identity() const { return {}; }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    return {x[row * columns + column], over_rows ? row : column};
  }
  HOST_DEVICE Value Combine(Value a, Value b) const {
    if (a.value != b.value) return a.value > b.value ? a : b;
    return a.index < b.index ? a : b;
  }
  HOST_DEVICE void Store(int64_t i, Value v) const { y[i] = v.index; }
};

class ParallelTest : public testing::TestWithParam<DeviceKind> {
 protected:
  std::unique_ptr<Device> NewDevice(int threads) const {
    if (GetParam() == DeviceKind::kCpu) return NewCpuDevice({.threads = threads});
    return NewSimDevice({.threads = threads});
  }

  // Runs enqueue(stream) to its end.  Host memory will do on cpu and sim.
  template <typename Enqueue>
  void Run(int threads, Enqueue enqueue) const {
    const std::unique_ptr<Device> device = NewDevice(threads);
    const std::unique_ptr<Stream> stream = std::move(device->NewStream()).value();
    EXPECT_TRUE(enqueue(*stream).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
  }

  // Magnitudes from 1e-8 to 1e8: any other order of additions gives other bits.
  std::vector<double> Random(int64_t n) {
    std::vector<double> x(n);
    for (double& v : x) {
      v = std::normal_distribution<double>()(random_) *
          std::pow(10, std::uniform_real_distribution<double>(-8, 8)(random_));
    }
    return x;
  }

  // By rows or by columns, with each thread count.  Every element is loaded once, every result
  // stored once and near the sum in long double, and all thread counts give the same bits.
  void CheckSums(int64_t rows, int64_t columns, bool by_rows) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", by_rows " << by_rows);
    const std::vector<double> x = Random(rows * columns);
    const int64_t results = by_rows ? rows : columns;
    std::vector<long double> sums(results), magnitudes(results);
    for (int64_t i = 0; i < rows * columns; ++i) {
      sums[by_rows ? i / columns : i % columns] += x[i];
      magnitudes[by_rows ? i / columns : i % columns] += std::abs(x[i]);
    }
    std::vector<double> first;
    for (const int threads : {1, 2, 3, 7}) {
      std::vector<double> y(results, -1);
      std::vector<int> loads(rows * columns), stores(results);
      const Sum sum = {x.data(), y.data(), loads.data(), stores.data(), columns};
      Run(threads, [&](Stream& stream) {
        return by_rows ? ForEachRow(stream, rows, columns, sum)
                       : ReduceColumns(stream, rows, columns, sum);
      });
      EXPECT_EQ(loads, std::vector<int>(rows * columns, 1));
      EXPECT_EQ(stores, std::vector<int>(results, 1));
      if (threads == 1) first = y;
      EXPECT_EQ(y, first) << threads << " threads";
      for (int64_t i = 0; i < results; ++i) {
        EXPECT_NEAR(y[i], static_cast<double>(sums[i]), 1e-13 * magnitudes[i]);
      }
    }
  }

  void CheckArgMax(int64_t rows, int64_t columns, bool by_rows) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", by_rows " << by_rows);
    std::vector<double> x(rows * columns);
    for (double& v : x) v = std::uniform_int_distribution<int>(0, 9)(random_);  // many ties
    const int64_t results = by_rows ? rows : columns;
    std::vector<int64_t> y(results), expected(results, ArgMax::Value().index);
    const ArgMax arg_max = {x.data(), y.data(), columns, !by_rows};
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        int64_t& best = expected[by_rows ? row : column];
        const auto at = [&](int64_t i) {
          return x[by_rows ? row * columns + i : i * columns + column];
        };
        const int64_t i = by_rows ? column : row;
        if (best == ArgMax::Value().index || at(i) > at(best)) best = i;
      }
    }
    Run(2, [&](Stream& stream) {
      return by_rows ? ForEachRow(stream, rows, columns, arg_max)
                     : ReduceColumns(stream, rows, columns, arg_max);
    });
    EXPECT_EQ(y, expected);
  }

  std::mt19937_64 random_{1};
};

INSTANTIATE_TEST_SUITE_P(Host, ParallelTest, testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) { return std::string(DeviceKindName(info.param)); });

TEST_P(ParallelTest, ForEachCallsOnceForEachIndex) {
  for (const int threads : {1, 2, 7}) {
    for (const int64_t n : kManySizes) {
      std::vector<int> visits(n + 1);
      Run(threads, [&](Stream& stream) { return ForEach(stream, n, Visit{visits.data()}); });
      std::vector<int> expected(n + 1, 1);
      expected[n] = 0;
      EXPECT_EQ(visits, expected) << n;
    }
  }
}

TEST_P(ParallelTest, RowSums) {
  for (const int64_t rows : kFewSizes) {
    for (const int64_t columns : kFewSizes) CheckSums(rows, columns, true);
  }
  for (const int64_t columns : kManySizes) {
    for (const int64_t rows : {1, 3}) CheckSums(rows, columns, true);
  }
  CheckSums(2000, 10, true);
  CheckSums(1025, 12, true);
  CheckSums(2, 50001, true);
}

TEST_P(ParallelTest, ColumnSums) {
  for (const int64_t rows : kFewSizes) {
    for (const int64_t columns : kFewSizes) CheckSums(rows, columns, false);
  }
  for (const int64_t many : kManySizes) {
    for (const int64_t few : {1, 3}) {
      CheckSums(many, few, false);
      CheckSums(few, many, false);
    }
  }
  CheckSums(700, 300, false);
  CheckSums(30001, 9, false);
}

struct EqualFloats : ::gyre::SumReduction<float> {
  float value;
  float* to;
  HOST_DEVICE float Load(int64_t, int64_t) const { return value; }
  HOST_DEVICE void Store(int64_t i, float v) const { to[i] = v; }
  HOST_DEVICE float Finish(float v) const { return v; }
  HOST_DEVICE void Apply(int64_t, int64_t column, float v) const {
    if (column == 0) to[0] = v;
  }
};

// Equal terms, whose roundings do not cancel: as exact as a sum of few.
TEST_P(ParallelTest, LongSumsOfFloats) {
  constexpr int64_t kTerms = (1 << 22) - 1000;
  for (const float value : {0.1F, 0.731F}) {
    float by_row = 0, by_column = 0, whole_row = 0;
    Run(2, [&](Stream& stream) -> absl::Status {
      RETURN_IF_ERROR(ForEachRow(stream, 1, kTerms, EqualFloats{{}, value, &by_row}));
      RETURN_IF_ERROR(ReduceColumns(stream, kTerms, 1, EqualFloats{{}, value, &by_column}));
      return TransformRows(stream, 1, kTerms, EqualFloats{{}, value, &whole_row});
    });
    const double sum = static_cast<double>(value) * kTerms;
    for (const float got : {by_row, by_column, whole_row}) EXPECT_NEAR(got / sum, 1, 5e-6);
  }
}

TEST_P(ParallelTest, ForEachPartCallsOnceForEachIndexOfEachPart) {
  const std::vector<std::vector<int64_t>> lists = {
      {}, {0}, {1}, {3, 0, 1}, {0, 9000}, {8191, 1, 0, 2}, {5, 30000, 7, 0, 4000}};
  for (const int threads : {1, 2, 7}) {
    for (const std::vector<int64_t>& sizes : lists) {
      std::vector<std::vector<int>> visits;
      std::vector<FusedLoop<Visit>> parts;
      for (const int64_t n : sizes) visits.emplace_back(n + 1);
      for (size_t k = 0; k < sizes.size(); ++k) parts.push_back({sizes[k], {visits[k].data()}});
      Run(threads, [&](Stream& stream) { return ForEachPart(stream, parts); });
      for (size_t k = 0; k < sizes.size(); ++k) {
        std::vector<int> expected(sizes[k] + 1, 1);
        expected.back() = 0;
        EXPECT_EQ(visits[k], expected) << threads << " threads, part " << k;
      }
    }
  }
}

// What a fused multiply-add, a reciprocal or another order would show in.
struct Formula {
  const float* x;
  float* y;
  HOST_DEVICE void operator()(int64_t i) const {
    const float v = x[i] > 0 ? x[i] : 0.25f * x[i];
    y[i] = v * 1.1f + y[i] / (std::sqrt(v * v + 0.3f) + 1e-3f);
  }
};

struct FloatSum : ::gyre::SumReduction<float> {
  const float* x;
  float* y;
  int64_t columns;
  HOST_DEVICE float Load(int64_t row, int64_t column) const { return x[row * columns + column]; }
  HOST_DEVICE void Store(int64_t i, float v) const { y[i] = v; }
  HOST_DEVICE float Finish(float v) const { return v / 3; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, float v) const {
    y[row * columns + column] = x[row * columns + column] * 1.1f - v;
  }
};

template <typename From, typename To>
struct Convert {
  const From* from;
  To* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = static_cast<To>(from[i]); }
};

TEST_P(ParallelTest, EveryInstructionSetGivesTheSameBits) {
  constexpr int64_t kRows = 37, kColumns = 1003, kElements = kRows * kColumns;
  const std::vector<double> random = Random(kElements);
  const std::vector<float> x(random.begin(), random.end());
  const ScatterCase scatter(random, kRows, kColumns, 5, random_);
  std::vector<std::vector<float>> first;
  WithEachInstructionSet([&] {
    std::vector<std::vector<float>> got(7, std::vector<float>(kElements, 1.5f));
    std::vector<Half> half(kElements);
    std::vector<BFloat16> bfloat(kElements);
    const auto sum = [&](int i) { return FloatSum{{}, x.data(), got[i].data(), kColumns}; };
    std::vector<float> sums = scatter.fresh;
    Run(2, [&](Stream& stream) {
      RETURN_IF_ERROR(ForEach(stream, kElements, Formula{x.data(), got[0].data()}));
      RETURN_IF_ERROR(ForEachPart<Formula>(
          stream, {{5, {x.data(), got[1].data()}}, {999, {x.data() + 7, got[1].data() + 7}}}));
      RETURN_IF_ERROR(ForEachRow(stream, kRows, kColumns, sum(2)));
      RETURN_IF_ERROR(ReduceColumns(stream, kRows, kColumns, sum(3)));
      RETURN_IF_ERROR(TransformRows(stream, kRows, kColumns, sum(4)));
      RETURN_IF_ERROR(ScatterAdd(stream, kRows, kColumns, scatter.Into(sums)));
      RETURN_IF_ERROR(ForEach(stream, kElements, Convert<float, Half>{x.data(), half.data()}));
      RETURN_IF_ERROR(ForEach(stream, kElements, Convert<Half, float>{half.data(), got[5].data()}));
      RETURN_IF_ERROR(
          ForEach(stream, kElements, Convert<float, BFloat16>{x.data(), bfloat.data()}));
      return ForEach(stream, kElements, Convert<BFloat16, float>{bfloat.data(), got[6].data()});
    });
    EXPECT_EQ(sums, scatter.expected);
    if (first.empty()) first = got;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(std::memcmp(got[i].data(), first[i].data(), kElements * sizeof(float)), 0)
          << i << ", " << InstructionSetName(CurrentInstructionSet());
    }
  });
}

// Conversions by vectors are those of single numbers, which half_test checks.
TEST_P(ParallelTest, EveryInstructionSetConvertsEveryHalf) {
  constexpr int64_t kAll = 1 << 16;
  std::vector<Half> all(kAll), back(kAll);
  for (int64_t i = 0; i < kAll; ++i) all[i].bits = static_cast<uint16_t>(i);
  WithEachInstructionSet([&] {
    std::vector<float> wide(kAll);
    Run(1, [&](Stream& stream) {
      RETURN_IF_ERROR(ForEach(stream, kAll, Convert<Half, float>{all.data(), wide.data()}));
      return ForEach(stream, kAll, Convert<float, Half>{wide.data(), back.data()});
    });
    for (int64_t i = 0; i < kAll; ++i) {
      const float one = all[i];
      EXPECT_EQ(std::memcmp(&wide[i], &one, sizeof(one)), 0) << i;
      EXPECT_EQ(back[i].bits, std::isnan(one) ? 0x7FFF : i);
    }
  });
}

// Of rows that ForEachRow reduces in one piece, as TransformRows does all.
TEST_P(ParallelTest, TransformsRowsInPlace) {
  for (const int64_t rows : {0, 1, 3, 200}) {
    for (const int64_t columns : {0, 1, 15, 16, 17, 300, 4096}) {
      const std::vector<double> x = Random(rows * columns);
      std::vector<double> want = x, sums(rows);
      std::vector<int> loads(rows * columns), stores(rows);
      const Sum sum = {x.data(), sums.data(), loads.data(), stores.data(), columns};
      Run(1, [&](Stream& stream) { return ForEachRow(stream, rows, columns, sum); });
      for (int64_t i = 0; i < rows * columns; ++i) want[i] -= sums[i / columns] / 2;
      for (const int threads : {1, 2, 7}) {
        std::vector<double> got = x;
        Run(threads, [&](Stream& stream) {
          return TransformRows(stream, rows, columns, SubtractHalfSum{got.data(), columns});
        });
        EXPECT_EQ(got, want) << rows << " x " << columns << ", threads " << threads;
      }
    }
  }
}

TEST_P(ParallelTest, ValuesOfSeveralFields) {
  for (const bool by_rows : {true, false}) {
    CheckArgMax(0, 5, by_rows);
    CheckArgMax(5, 0, by_rows);
    for (const int64_t many : {1, 7, 17, 300, 5000}) {
      CheckArgMax(many, 3, by_rows);
      CheckArgMax(3, many, by_rows);
    }
  }
}

TEST_P(ParallelTest, ScatterAddsRowsInOrder) {
  constexpr int64_t kDestinations = 5;
  for (const int64_t rows : {0, 1, 2, 50, 333}) {
    for (const int64_t columns : {0, 1, 127, 128, 129, 700}) {
      const ScatterCase c(Random(rows * columns), rows, columns, kDestinations, random_);
      for (const int threads : {1, 3}) {
        std::vector<float> y = c.fresh;
        const AddRows scatter = c.Into(y);
        Run(threads, [&](Stream& stream) { return ScatterAdd(stream, rows, columns, scatter); });
        EXPECT_EQ(y, c.expected) << rows << " x " << columns;
      }
    }
  }
}

TEST_P(ParallelTest, AFailedStreamRunsNothing) {
  const std::unique_ptr<Device> device = NewDevice(1);
  const std::unique_ptr<Stream> stream = std::move(device->NewStream()).value();
  const absl::Status error = absl::DataLossError("bad");
  (void)stream->Call([error] { return error; });
  EXPECT_EQ(stream->Synchronize(), error);
  int visits = 0;
  EXPECT_EQ(ForEach(*stream, 1, Visit{&visits}), error);
  double x = 1, y = 0;
  int loads = 0, stores = 0;
  const Sum sum = {&x, &y, &loads, &stores, 1};
  EXPECT_EQ(ForEachRow(*stream, 1, 1, sum), error);
  EXPECT_EQ(ReduceColumns(*stream, 1, 1, sum), error);
  EXPECT_EQ(TransformRows(*stream, 1, 1, SubtractHalfSum{&x, 1}), error);
  const int64_t destination = 0;
  const float from = 1;
  float to = 0;
  EXPECT_EQ(ScatterAdd(*stream, 1, 1, AddRows{&destination, &from, &to, 1}), error);
  EXPECT_EQ(stream->Synchronize(), error);
  EXPECT_EQ(std::make_tuple(visits, loads, stores, to), std::make_tuple(0, 0, 0, 0.0f));
}

// The checker itself, which finds each broken law.
struct Law {
  using Value = double;
  double identity;
  double (*combine)(double, double);
  Value Identity() const { return identity; }
  Value Load(int64_t row, int64_t column) const {
    return static_cast<double>(1 + (row * 7 + column * 5) % 11);
  }
  Value Combine(Value a, Value b) const { return combine(a, b); }
};

// The laws that every sum of the tree inherits; a sum adds what to load and where to store.
template <typename V>
struct Loaded : ::gyre::SumReduction<V> {
  std::vector<V> values;
  V Load(int64_t row, int64_t column) const { return values[row * 9 + column]; }
};

TEST(MonoidCheckTest, SumIsAMonoid) {
  const auto check = [](auto zero, auto near) {
    using V = decltype(zero);
    std::mt19937_64 random(3);
    Loaded<V> loaded;
    for (int i = 0; i < 5 * 9; ++i) {
      loaded.values.push_back(static_cast<V>(static_cast<double>(random() % 2001) / 64 - 15));
    }
    EXPECT_TRUE(IsMonoid(loaded, 5, 9, near));
  };
  check(int32_t{}, [](int32_t a, int32_t b) { return a == b; });
  check(float{}, [](float a, float b) { return std::abs(a - b) <= 1e-4f; });
  check(double{}, [](double a, double b) { return std::abs(a - b) <= 1e-12; });
}

TEST(MonoidCheckTest, FindsEachBrokenLaw) {
  const auto equal = [](double a, double b) { return a == b; };
  const auto message = [&](const Law& law) {
    return std::string(IsMonoid(law, 2, 5, equal).message());
  };
  EXPECT_EQ(message({1, [](double a, double b) { return a + b; }}),
            "Identity changes the value at row 0, column 0");
  EXPECT_EQ(message({0, [](double a, double b) { return a + b + a * a * b; }}),
            "not associative on row 0");
  EXPECT_EQ(message({0, [](double a, double b) { return a != 0 ? a : b; }}),
            "not commutative on row 0");
}

}  // namespace
}  // namespace gyre
