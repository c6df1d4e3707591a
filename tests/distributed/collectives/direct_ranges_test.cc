// The sum of squares that `direct` gives all ranks is that of its pieces, to the last bit: whoever
// measures these has it, too.

#include "distributed/collectives/algorithms/direct_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/distributed/collectives/subject.h"

namespace gyre {
namespace {

template <typename T>
double Measured(std::vector<T> sum, int ranks) {
  const auto count = static_cast<int64_t>(sum.size());
  const std::vector<ElementRange> pieces = DirectRanges(count, sizeof(T), ranks);
  std::vector<double> squares;
  int64_t end = 0;
  for (const ElementRange piece : pieces) {
    EXPECT_EQ(piece.begin, end);
    EXPECT_GT(piece.count(), 0);
    end = piece.end;
    const void* const in[] = {&sum[piece.begin]};
    void* const out[] = {&sum[piece.begin]};
    squares.push_back(AddAll(kDTypeOf<T>, in, out, piece.count()));
  }
  EXPECT_EQ(end, count);
  return AddDirectRanges(count, sizeof(T), ranks, squares);
}

template <typename T>
void Check(int ranks, int64_t count) {
  RunRanksOf("direct", ranks, [&](Communicator& communicator) {
    std::mt19937 random(static_cast<unsigned>(communicator.rank() + 1));
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<T> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(uniform(random)));
    const auto subject = NewSubject("direct", communicator);
    double squares = 0;
    ASSERT_TRUE(Operate(*subject, Operation::kAllreduce,
                        {values.data(), Shape({count}), kDTypeOf<T>}, &squares)
                    .ok());
    EXPECT_EQ(squares, Measured(values, ranks)) << ranks << " ranks, " << count << " elements";
  });
}

TEST(DirectRanges, AddUpToItsSquares) {
  for (const int ranks : {2, 3, 5}) {
    for (const int64_t count : {0, 1, 4, 1000, 200'001}) {
      Check<float>(ranks, count);
      Check<double>(ranks, count);
      Check<Half>(ranks, count);
      Check<BFloat16>(ranks, count);
    }
  }
}

}  // namespace
}  // namespace gyre
