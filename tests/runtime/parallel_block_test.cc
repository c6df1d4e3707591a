// What a GPU's blocks do in each skeleton, by blocks that are loops: every phase runs its threads
// one after another, in one order or the other, so that a value that one thread writes and another
// one reads in the same phase shows in the bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/runtime/parallel/block.h"
#include "engine/runtime/parallel/split.h"
#include "tests/runtime/scatter_case.h"

namespace gyre::parallel_internal {
namespace {

enum class Order : uint8_t { kForwards, kBackwards };

class LoopBlock {
 public:
  LoopBlock(int64_t index, int64_t count, Order order)
      : index_(index), count_(count), order_(order) {}
  int64_t index() const { return index_; }
  int64_t count() const { return count_; }

  template <typename F>
  void Phase(F f) {
    for (int i = 0; i < kThreads; ++i) f(order_ == Order::kForwards ? i : kThreads - 1 - i);
  }

  template <typename F>
  void WarpPhase(F f) {
    Phase(f);
  }

  template <typename F>
  bool Any(F f) {
    bool any = false;
    Phase([&](int thread) { any = f(thread) || any; });
    return any;
  }

 private:
  const int64_t index_, count_;
  const Order order_;
};

// Runs `blocks` blocks; body(block, shared memory that holds garbage).
template <typename Shared, typename Body>
void RunBlocks(int64_t blocks, Order order, Shared garbage, Body body) {
  for (int64_t i = 0; i < blocks; ++i) {
    LoopBlock block(order == Order::kForwards ? i : blocks - 1 - i, blocks, order);
    std::vector<Shared> shared(kThreads, garbage);
    body(block, shared.data());
  }
}

// Sums, as a reduction and, divided by 2 and subtracted, as a transformation in place.
struct Sum {
  using Value = double;
  double* x;
  double* y;
  int* loads;
  int* stores;
  int64_t columns;

  Value Identity() const { return 0; }
  Value Load(int64_t row, int64_t column) const {
    ++loads[row * columns + column];
    return x[row * columns + column];
  }
  Value Combine(Value a, Value b) const { return a + b; }
  void Store(int64_t i, Value v) const {
    y[i] = v;
    ++stores[i];
  }
  Value Finish(Value v) const { return v / 2; }
  void Apply(int64_t row, int64_t column, Value v) const {
    x[row * columns + column] -= v;
    ++stores[row];
  }
};

class ParallelBlockTest : public testing::Test {
 protected:
  // Magnitudes from 1e-8 to 1e8: any other order of additions gives other bits.
  std::vector<double> Random(int64_t n) {
    std::vector<double> x(n);
    for (double& v : x) {
      v = std::normal_distribution<double>()(random_) *
          std::pow(10, std::uniform_real_distribution<double>(-8, 8)(random_));
    }
    return x;
  }

  // Each element is loaded once, each result stored once and right; the bits depend neither on the
  // number of blocks nor on which thread of a phase comes first.  pieces: of each row (column).
  void CheckSums(int64_t rows, int64_t columns, bool by_rows, int64_t pieces = 1) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", by_rows " << by_rows << ", "
                                    << pieces << " pieces");
    std::vector<double> x = Random(rows * columns);
    const int64_t results = by_rows ? rows : columns;
    std::vector<long double> sums(results), magnitudes(results);
    for (int64_t i = 0; i < rows * columns; ++i) {
      sums[by_rows ? i / columns : i % columns] += x[i];
      magnitudes[by_rows ? i / columns : i % columns] += std::abs(x[i]);
    }
    std::vector<double> first;
    for (const int64_t blocks : {1, 2, 5, 300}) {
      for (const Order order : {Order::kForwards, Order::kBackwards}) {
        std::vector<double> y(results, -1), partial(results * pieces, NAN);
        std::vector<int> loads(rows * columns), stores(results);
        const Sum sum = {x.data(), y.data(), loads.data(), stores.data(), columns};
        const auto reduce = [&](int64_t m, int64_t n, int64_t cut, const auto& reduction) {
          RunBlocks(blocks, order, double{NAN}, [&](LoopBlock& block, double* values) {
            if (by_rows) {
              ForEachRowBlock(block, m, n, cut, reduction, values);
            } else {
              ReduceColumnsBlock(block, m, n, cut, reduction, values);
            }
          });
        };
        if (pieces == 1) {
          reduce(rows, columns, 1, sum);
        } else {
          reduce(rows, columns, pieces, IntoPartials<Sum>{sum, partial.data()});
          const int64_t m = by_rows ? rows : pieces, n = by_rows ? pieces : columns;
          reduce(m, n, 1, OfPartials<Sum>{sum, n, partial.data()});
        }
        EXPECT_EQ(loads, std::vector<int>(rows * columns, 1));
        EXPECT_EQ(stores, std::vector<int>(results, 1));
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << blocks << " blocks";
        for (int64_t i = 0; i < results; ++i) {
          EXPECT_NEAR(y[i], static_cast<double>(sums[i]), 1e-13 * magnitudes[i]);
        }
      }
    }
  }

  std::mt19937_64 random_{5};
};

// Around the sizes at which lanes double, and beyond one block.
const int64_t kSizes[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 33, 64, 100, 257, 511, 513};

TEST_F(ParallelBlockTest, RowSums) {
  for (const int64_t rows : {0, 1, 2, 3, 100}) {
    for (const int64_t columns : kSizes) CheckSums(rows, columns, true);
  }
  CheckSums(600, 5, true);
  CheckSums(3, 5000, true);
}

TEST_F(ParallelBlockTest, ColumnSums) {
  for (const int64_t rows : {0, 1, 3, 31, 33, 300}) {
    for (const int64_t columns : kSizes) CheckSums(rows, columns, false);
  }
  CheckSums(5000, 3, false);
  CheckSums(20, 1100, false);
  CheckSums(9, 4200, false);
}

// The last piece is shorter, or empty.
TEST_F(ParallelBlockTest, SumsInPieces) {
  for (const int64_t pieces : {2, 3, 7, 64}) {
    for (const int64_t few : {1, 3, 40}) {
      CheckSums(few, 1000, true, pieces);
      CheckSums(1000, few, false, pieces);
      CheckSums(few, 65, true, pieces);
      CheckSums(65, few, false, pieces);
    }
  }
}

struct Visit {
  int* visits;
  void operator()(int64_t i) const { ++visits[i]; }
};

TEST_F(ParallelBlockTest, ForEachPartCallsOnceForEachIndexOfEachPart) {
  const std::vector<int64_t> sizes = {0, 1, 1023, 1024, 1025, 0, 5000, 1};
  for (const int64_t blocks : {1, 2, 3, 100}) {
    std::vector<std::vector<int>> visits;
    for (const int64_t n : sizes) visits.emplace_back(n + 1);
    PartTable<Visit> table;
    for (size_t k = 0; k < sizes.size(); ++k) {
      table.parts[table.count++] = {sizes[k], {visits[k].data()}};
    }
    RunBlocks(blocks, Order::kForwards, 0,
              [&](LoopBlock& block, int*) { ForEachPartBlock(block, table); });
    for (size_t k = 0; k < sizes.size(); ++k) {
      std::vector<int> expected(sizes[k] + 1, 1);
      expected.back() = 0;
      EXPECT_EQ(visits[k], expected) << blocks << " blocks, part " << k;
    }
  }
}

TEST(PartTableTest, FitsAKernelsArguments) {
  struct Large {
    char bytes[100];
  };
  EXPECT_LE(sizeof(PartTable<Visit>), 4096u);
  EXPECT_LE(sizeof(PartTable<Large>), 4096u);
  EXPECT_GT(PartTable<Large>::kMost, 30);
}

TEST_F(ParallelBlockTest, TransformsRowsInPlace) {
  for (const int64_t rows : {0, 1, 3, 100}) {
    for (const int64_t columns : kSizes) {
      const std::vector<double> x = Random(rows * columns);
      std::vector<double> want = x;
      for (int64_t row = 0; row < rows; ++row) {
        double total = 0;
        int stores = 0;
        std::vector<int> loads(columns);
        const Sum sum = {want.data() + row * columns, &total, loads.data(), &stores, columns};
        RunBlocks(1, Order::kForwards, double{NAN}, [&](LoopBlock& block, double* values) {
          ForEachRowBlock(block, 1, columns, /*pieces=*/1, sum, values);
        });
        for (int64_t column = 0; column < columns; ++column) {
          want[row * columns + column] -= total / 2;
        }
      }
      for (const int64_t blocks : {1, 2, 300}) {
        for (const Order order : {Order::kForwards, Order::kBackwards}) {
          std::vector<double> got = x;
          std::vector<int> loads(rows * columns), stores(rows);
          const Sum sum = {got.data(), nullptr, loads.data(), stores.data(), columns};
          RunBlocks(blocks, order, double{NAN}, [&](LoopBlock& block, double* values) {
            TransformRowsBlock(block, rows, columns, sum, values);
          });
          EXPECT_EQ(got, want) << rows << " x " << columns;
          EXPECT_EQ(loads, std::vector<int>(rows * columns, 1));
          EXPECT_EQ(stores, std::vector<int>(rows, static_cast<int>(columns)));
        }
      }
    }
  }
}

// In the order of the rows, which the bits of float show; more rows than a block has threads, and
// more columns than a block takes.
TEST_F(ParallelBlockTest, ScatterAddsRowsInOrder) {
  for (const int64_t destinations : {1, 5, 400}) {
    for (const int64_t rows : {0, 1, 2, 50, 256, 257, 800}) {
      for (const int64_t columns : {1, 3, 255, 1500}) {
        if (rows * columns > 300000) continue;
        const ScatterCase c(Random(rows * columns), rows, columns, destinations, random_);
        for (const int64_t blocks : {1, 7, 2000}) {
          for (const Order order : {Order::kForwards, Order::kBackwards}) {
            std::vector<float> y = c.fresh;
            const AddRows scatter = c.Into(y);
            RunBlocks(blocks, order, static_cast<unsigned char>(0xFF),
                      [&](LoopBlock& block, unsigned char* flags) {
                        ScatterAddBlock(block, rows, columns, scatter, flags);
                      });
            EXPECT_EQ(y, c.expected) << rows << " x " << columns << " to " << destinations;
          }
        }
      }
    }
  }
}

TEST(LanesTest, ArePowersOfTwoThatSuitTheExtents) {
  for (int64_t columns = 0; columns < 20000; ++columns) {
    const int row_lanes = RowLanes(columns);
    EXPECT_EQ(kThreads % row_lanes, 0);
    EXPECT_TRUE(row_lanes == 1 || row_lanes < columns) << columns;
    for (const int64_t pieces : {1, 1000}) {
      const int column_lanes = ColumnLanes(columns, pieces);
      EXPECT_EQ(kThreads % column_lanes, 0);
      EXPECT_TRUE(column_lanes <= 32 && column_lanes < std::max<int64_t>(2, 2 * columns))
          << columns;
    }
  }
  EXPECT_EQ(RowLanes(10), 8);
  EXPECT_EQ(RowLanes(kWarpColumns), kWarp);
  EXPECT_EQ(RowLanes(1000), 256);
  EXPECT_EQ(ColumnLanes(64, 1), 8);
  EXPECT_EQ(ColumnLanes(64, 500), 32);
  EXPECT_EQ(ColumnLanes(4097, 1), 32);
}

TEST(SplitTest, LongReductionsHavePiecesForAWholeGpu) {
  constexpr int64_t kProcessors = 132;
  EXPECT_GE(RowSplit(1, 1'000'000), kProcessors);
  EXPECT_LE(RowSplit(1, 1'000'000'000), kWantedPartials);
  EXPECT_EQ(RowSplit(1, 4095), 1);
  EXPECT_EQ(RowSplit(5000, 1'000'000), 1) << "rows enough without";
  EXPECT_EQ(RowSplit(0, 1'000'000), 1);
  // Blocks of the first pass over a bias gradient.
  const int64_t pieces = ColumnSplit(100'000, 64);
  EXPECT_GE(pieces * CeilDiv(64, ColumnLanes(64, pieces)), kProcessors);
  EXPECT_EQ(ColumnSplit(511, 64), 1);
  EXPECT_EQ(ColumnSplit(100'000, 40'000), 1);
  EXPECT_EQ(ColumnSplit(100'000, 0), 1);
}

}  // namespace
}  // namespace gyre::parallel_internal
