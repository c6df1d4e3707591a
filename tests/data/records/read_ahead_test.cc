#include "engine/data/batches/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace gyre {
namespace {

// Each rank asks once for each sample that it will read, before the batch of the sample, and for no
// other.
TEST(ReadAheadTest, AsksForEachSampleOnceBeforeItsBatch) {
  const std::vector<int64_t> files = {40, 1, 33, 26};
  for (const int64_t window : {1, 7, 25, 100, 1000}) {
    for (const int ranks : {1, 3}) {
      for (const int64_t batch : {1, 5, 24, 260}) {
        const SampleOrder order = SampleOrder::Windowed(files, window, 3);
        for (int rank = 0; rank < ranks; ++rank) {
          const Share share = ShareOf(batch, rank, ranks);
          const int64_t begin = 2 * batch + share.first;  // as of a resumed run
          ReadAhead ahead(order, begin, share.count, batch);
          SampleOrder read = order;
          std::map<int64_t, int64_t> asked;  // and not yet read
          for (int64_t step = 0; step < 60; ++step) {
            for (const int64_t sample : ahead.Next()) ++asked[sample];
            for (int64_t i = 0; i < share.count; ++i) {
              EXPECT_GE(--asked[read.At(begin + step * batch + i)], 0);
            }
          }
          // What is asked for is of this window and the next.
          int64_t beyond = 0;
          for (const auto& [sample, count] : asked) beyond += count;
          EXPECT_LE(beyond, 2 * std::max(window + batch, batch));
        }
      }
    }
  }
}

// The samples of the next window come sorted, as many for each batch.
TEST(ReadAheadTest, AsksInTheOrderOfBytes) {
  const std::vector<int64_t> files = {400, 400};
  ReadAhead ahead(SampleOrder::Windowed(files, 100, 1), 0, 10, 10);
  const std::vector<int64_t> first = ahead.Next();
  ASSERT_EQ(first.size(), 110);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.begin() + 100));
  for (int64_t window = 0; window < 10; ++window) {
    std::vector<int64_t> all;
    for (int64_t batch = 0; batch < 10; ++batch) {
      if (window == 0 && batch == 0) {
        all.assign(first.begin() + 100, first.end());
        continue;
      }
      const std::vector<int64_t> next = ahead.Next();
      EXPECT_EQ(next.size(), 10);
      all.insert(all.end(), next.begin(), next.end());
    }
    EXPECT_TRUE(std::ranges::is_sorted(all));
    // Blocks of 100 / 16 samples and more, cut at a window's ends: few seeks.
    const int64_t seeks = std::ranges::count_if(all, [&](const int64_t& sample) {
      return &sample != &all[0] && sample != (&sample)[-1] + 1;
    });
    EXPECT_LE(seeks, 18);
  }
}

}  // namespace
}  // namespace gyre
