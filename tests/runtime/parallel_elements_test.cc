// What a GPU's threads do in ForEach and ForEachCell, by threads that are loops.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "engine/runtime/parallel/elements.h"

namespace gyre::parallel_internal {
namespace {

// Around one batch and several of them.
const int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 100, 1001};
const int64_t kThreadCounts[] = {1, 2, 3, 8, 96, 2000};

// What was called for an element: L, S, or C for operator().
using Calls = std::vector<std::string>;

// x = 3 x + 1 in place.
struct Loads {
  int64_t* x;
  Calls* calls;
  std::string* order;
  int64_t Load(int64_t i) const {
    (*calls)[i] += 'L';
    *order += 'L';
    return 3 * x[i] + 1;
  }
  void Store(int64_t i, int64_t v) const {
    (*calls)[i] += 'S';
    *order += 'S';
    x[i] = v;
  }
};

struct Direct {
  int64_t* x;
  Calls* calls;
  std::string* order;
  void operator()(int64_t i) const {
    (*calls)[i] += 'C';
    *order += 'C';
    x[i] = 3 * x[i] + 1;
  }
};

// Either of them at row * columns + column.
template <typename F>
struct Cell {
  F f;
  int64_t columns;
  void operator()(int64_t row, int64_t column) const { f(row * columns + column); }
};

template <>
struct Cell<Loads> {
  Loads f;
  int64_t columns;
  int64_t Load(int64_t row, int64_t column) const { return f.Load(row * columns + column); }
  void Store(int64_t row, int64_t column, int64_t v) const { f.Store(row * columns + column, v); }
};

template <typename F>
class ParallelElementsTest : public testing::Test {
 protected:
  static constexpr bool kLoads = std::is_same_v<F, Loads>;

  // Runs thread(index, functor) for each thread, and checks each of n elements.  Returns the order
  // of the calls of the first thread.
  template <typename Thread>
  std::string Check(int64_t threads, int64_t n, Thread thread) {
    SCOPED_TRACE(testing::Message() << threads << " threads, " << n << " elements");
    std::vector<int64_t> x(n), expected(n);
    for (int64_t i = 0; i < n; ++i) {
      x[i] = i * i;
      expected[i] = 3 * x[i] + 1;
    }
    Calls calls(n);
    std::string order, first;
    for (int64_t k = 0; k < threads; ++k) {
      thread(k, F{x.data(), &calls, &order});
      if (k == 0) first = order;
    }
    EXPECT_EQ(x, expected);
    EXPECT_EQ(calls, Calls(n, kLoads ? "LS" : "C"));
    return first;
  }
};

using Functors = testing::Types<Loads, Direct>;
TYPED_TEST_SUITE(ParallelElementsTest, Functors);

TYPED_TEST(ParallelElementsTest, EachElementOnce) {
  for (const int64_t threads : kThreadCounts) {
    for (const int64_t n : kSizes) {
      this->Check(threads, n, [&](int64_t k, const auto& f) { CallEach(k, threads, n, f); });
    }
  }
}

TYPED_TEST(ParallelElementsTest, EachCellOnce) {
  for (const int64_t threads : kThreadCounts) {
    for (const int64_t rows : kSizes) {
      for (const int64_t columns : kSizes) {
        if (columns == 0) continue;  // nothing is launched
        this->Check(threads, rows * columns, [&](int64_t k, const TypeParam& f) {
          CallEachCell(k, threads, rows, columns, Cell<TypeParam>{f, columns});
        });
      }
    }
  }
}

TYPED_TEST(ParallelElementsTest, ABatchIsLoadedBeforeItIsStored) {
  const std::string order = this->Check(
      3, 30, [](int64_t k, const auto& f) { CallEach(k, 3, 30, f); });  // 10 of each thread
  EXPECT_EQ(order, this->kLoads ? "LLLLSSSSLLLLSSSSLSLS" : "CCCCCCCCCC");
  const std::string cells = this->Check(12, 45, [](int64_t k, const TypeParam& f) {
    CallEachCell(k, 12, 9, 5, Cell<TypeParam>{f, 5});  // 2 rows apart
  });
  EXPECT_EQ(cells, this->kLoads ? "LLLLSSSSLS" : "CCCCC");
}

}  // namespace
}  // namespace gyre::parallel_internal
