// Which rows a rank owns, and how they are cut into chunks.

#include "distributed/parameter_server/tables.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "distributed/server_shards.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

TEST(ServerShard, CutsAllOfItInTheOrderOfRanks) {
  for (int workers = 1; workers <= 8; ++workers) {
    for (int dedicated = 0; dedicated <= 10; ++dedicated) {
      for (const int64_t elements : {0, 1, 2, 7, 64, 1000, 12345}) {
        int64_t next = 0;
        for (int rank = 0; rank < workers + dedicated; ++rank) {
          const ElementRange part = ServerShard(elements, workers, dedicated, rank);
          EXPECT_EQ(part.begin, next);
          EXPECT_GE(part.count(), 0);
          next = part.end;
        }
        EXPECT_EQ(next, elements);
      }
    }
  }
}

TEST(ServerShard, IsEqualWithoutDedicatedOnes) {
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ServerShard(100, 3, 0, rank).begin, EqualPart(100, 3, rank).begin);
  }
}

// By hand: n = 4, k = 2: d = 2 * 5 / 6 * 3 / (16 + 5 / 6 * 4) = 15 / 58, w = (1 - 30 / 58) / 4.
TEST(ServerShard, HasOthersSendFiveSixthsOfWhatWorkersDo) {
  constexpr int64_t kElements = 58'000;
  EXPECT_EQ(ServerShard(kElements, 4, 2, 0).count(), 7'000);
  EXPECT_EQ(ServerShard(kElements, 4, 2, 5).count(), 15'000);
  for (int workers = 2; workers <= 8; ++workers) {
    for (int dedicated = 1; dedicated < workers; ++dedicated) {
      const double other = DedicatedFraction(workers, dedicated);
      const double own = (1 - dedicated * other) / workers;
      EXPECT_NEAR(workers * other / (1 - own + (workers - 1) * own), 5.0 / 6, 1e-9);
    }
    // From as many on as there are workers these own nothing.
    EXPECT_EQ(ServerShard(kElements, workers, workers, 0).count(), 0);
    EXPECT_EQ(ServerShard(kElements, workers, workers + 1, workers - 1).count(), 0);
  }
  EXPECT_EQ(ServerShard(kElements, 1, 1, 0).count(), 0);
}

TEST(CutIntoChunks, HasAsManyAccessedRowsInEach) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const ElementRange part = {static_cast<int64_t>(random() % 5),
                               5 + static_cast<int64_t>(random() % 40)};
    std::vector<int64_t> accessed;
    for (int64_t row = 0; row < part.count(); ++row) {
      if (random() % 3 > 0) accessed.push_back(row);
    }
    const auto count = static_cast<int64_t>(accessed.size());
    const int64_t chunks = 1 + static_cast<int64_t>(random() % std::max<int64_t>(count, 1));
    const auto cut = CutIntoChunks(part, RowList::Of(accessed), chunks);
    ASSERT_EQ(static_cast<int64_t>(cut.size()), chunks);
    int64_t next = part.begin;
    for (const ElementRange& chunk : cut) {
      EXPECT_EQ(chunk.begin, next);
      next = chunk.end;
      const auto in = std::ranges::count_if(accessed, [&](int64_t row) {
        return row + part.begin >= chunk.begin && row + part.begin < chunk.end;
      });
      EXPECT_GE(in, count / chunks);
      EXPECT_LE(in, CeilDiv(count, chunks));
    }
    EXPECT_EQ(next, part.end);
  }
}

}  // namespace
}  // namespace gyre
