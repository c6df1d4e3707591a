// Which rows a rank owns, and which of an access's rows are whose.

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

TEST(RowList, HasNeighboursAsOneRun) {
  const std::vector<int64_t> rows = {3, 4, 5, 1, 2, 7};
  const RowList list = RowList::Of(rows);
  EXPECT_EQ(list.count(), 6);
  ASSERT_EQ(list.runs().size(), 3u);
  EXPECT_EQ(list.runs()[1].begin, 1);
  EXPECT_EQ(list.runs()[1].end, 3);
  EXPECT_TRUE(list.Within(8));
  EXPECT_FALSE(list.Within(7));
  EXPECT_FALSE(list.HasDuplicates());
  EXPECT_FALSE(RowList::Of(std::vector<int64_t>{-1}).Within(3));
  EXPECT_TRUE(RowList::Of(std::vector<int64_t>{4, 5, 6, 5}).HasDuplicates());
  EXPECT_TRUE(RowList::Of(std::vector<int64_t>{4, 4}).HasDuplicates());
  EXPECT_EQ(RowList::All(0).count(), 0);
  EXPECT_EQ(RowList::All(0).runs().size(), 0u);
  EXPECT_EQ(RowList::All(9).runs().size(), 1u);
}

TEST(CutRows, FindsEachRowInItsRange) {
  const std::vector<ElementRange> ranges = {{0, 0}, {0, 3}, {3, 3}, {3, 5}, {5, 8}, {8, 8}};
  const std::vector<int64_t> rows = {6, 2, 3, 4, 5, 0, 6};
  const std::vector<RowSelection> pieces = CutRows(RowList::Of(rows), ranges);
  ASSERT_EQ(pieces.size(), ranges.size());
  std::vector<int64_t> found(rows.size(), -1);
  const auto each = [](const RowList& list) {
    std::vector<int64_t> all;
    for (const ElementRange& run : list.runs()) {
      for (int64_t i = run.begin; i < run.end; ++i) all.push_back(i);
    }
    return all;
  };
  for (size_t range = 0; range < pieces.size(); ++range) {
    const std::vector<int64_t> in = each(pieces[range].rows), places = each(pieces[range].places);
    ASSERT_EQ(in.size(), places.size());
    for (size_t i = 0; i < in.size(); ++i) {
      found[places[i]] = ranges[range].begin + in[i];
      EXPECT_LT(found[places[i]], ranges[range].end);
    }
  }
  EXPECT_EQ(found, rows);
  for (const RowSelection& piece : CutRows(RowList(), ranges)) EXPECT_EQ(piece.count(), 0);
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

TEST(ServerChunks, AreAtLeastOneAndAtMostTheRows) {
  EXPECT_EQ(ServerChunks(0, 4, 8), 1);
  EXPECT_EQ(ServerChunks(2, 4, 8), 1);
  EXPECT_EQ(ServerChunks(3, 4, 8), 2);
  EXPECT_EQ(ServerChunks(3, 100, 8), 3);
  EXPECT_EQ(ServerChunks(5, 0, 8), 1);
}

TEST(Union, HasEachRowOnce) {
  const RowList lists[] = {RowList::Of(std::vector<int64_t>{5, 6, 1}), RowList(),
                           RowList::Of(std::vector<int64_t>{6, 7, 2, 9})};
  const RowList all = Union(lists);
  EXPECT_EQ(all.count(), 6);
  ASSERT_EQ(all.runs().size(), 3u);  // 1 2, 5 6 7, 9
  EXPECT_EQ(all.runs()[1].begin, 5);
  EXPECT_EQ(all.runs()[1].end, 8);
  const RowList places = PlacesIn(all, lists[2]);  // 6 7, 2, 9
  ASSERT_EQ(places.runs().size(), 3u);
  EXPECT_EQ(places.runs()[0].begin, 3);
  EXPECT_EQ(places.runs()[0].end, 5);
  EXPECT_EQ(places.runs()[1].begin, 1);
  EXPECT_EQ(places.runs()[2].begin, 5);
  EXPECT_EQ(Union({}).count(), 0);
}

}  // namespace
}  // namespace gyre
