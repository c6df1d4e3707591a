#include "memory/resident/strip_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace gyre {
namespace {

TEST(StripPacking, Nothing) {
  EXPECT_EQ(PackBlocks({}).extent, 0u);
  EXPECT_TRUE(LiveBytes({}, 0).empty());
}

TEST(StripPacking, UsesAGapThatFitsExactly) {
  // Every order takes these as they come: the second lies on the first, the third below the second.
  const std::vector<PackItem> items = {{10, 0, 2}, {10, 2, 3}, {10, 3, 3}};
  EXPECT_EQ(PackBlocks(items).offsets, (std::vector<size_t>{0, 10, 0}));
}

// The lowest extent that any order of first-fit placements reaches.  Some order reaches the
// optimum: the optimal packing's own, from low to high.
size_t BestOverAllOrders(const std::vector<PackItem>& items) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  size_t best = SIZE_MAX;
  do {
    std::vector<size_t> offsets(items.size());
    size_t extent = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const PackItem& item = items[order[i]];
      size_t offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t j = 0; j < i; ++j) {
          const PackItem& other = items[order[j]];
          const bool together =
              item.first_step <= other.last_step && other.first_step <= item.last_step;
          if (together && offset < offsets[order[j]] + other.bytes &&
              offsets[order[j]] < offset + item.bytes) {
            offset = offsets[order[j]] + other.bytes;
            moved = true;
          }
        }
      }
      offsets[order[i]] = offset;
      extent = std::max(extent, offset + item.bytes);
    }
    best = std::min(best, extent);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(StripPacking, NearTheOptimumOfSmallCases) {
  std::mt19937_64 rng(3);
  int optimal = 0;
  constexpr int kCases = 300;
  for (int k = 0; k < kCases; ++k) {
    std::vector<PackItem> items(1 + rng() % 6);
    for (PackItem& item : items) {
      const int a = static_cast<int>(rng() % 6), b = static_cast<int>(rng() % 6);
      item = {1 + rng() % 20, std::min(a, b), std::max(a, b)};
    }
    const size_t best = BestOverAllOrders(items), extent = PackBlocks(items).extent;
    EXPECT_GE(extent, best);
    EXPECT_LE(extent, best + best / 3);
    optimal += extent == best;
  }
  EXPECT_GE(optimal, kCases * 98 / 100);
}

// Steps that touch only what is there already, of which tiles of an update are, change no offset.
TEST(StripPacking, StepsThatBeginNothingDoNotCount) {
  std::mt19937_64 rng(5);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<int> begins(30);  // by step: where it begins among longer ones
    std::vector<PackItem> items, stretched;
    for (size_t s = 1; s < begins.size(); ++s) {
      begins[s] = begins[s - 1] + 1 + (rng() % 3 == 0 ? static_cast<int>(rng() % 40) : 0);
    }
    for (int i = 0; i < 60; ++i) {
      const auto [first, last] = std::minmax({rng() % 29, rng() % 29});
      const size_t bytes = 1 + rng() % 50;
      items.push_back({bytes, static_cast<int>(first), static_cast<int>(last)});
      // It may end in any of those that its last step is now.
      const int more = static_cast<int>(rng() % (begins[last + 1] - begins[last]));
      stretched.push_back({bytes, begins[first], begins[last] + more});
    }
    EXPECT_EQ(PackBlocks(stretched).offsets, PackBlocks(items).offsets);
  }
}

// Enough items to be looked at by runs: of lifetimes within each other, of short and of any ones.
// The digest is that of the definition, which looks at each placed item for each one to place.
TEST(StripPacking, RunsOfItemsChangeNoOffset) {
  std::mt19937_64 rng(11);
  uint64_t digest = 0;
  for (int trial = 0; trial < 60; ++trial) {
    constexpr int kItems = 400;
    const int steps = trial % 2 == 0 ? 30 : 800, sizes = trial % 5 == 0 ? 3 : 200;
    std::vector<PackItem> items;
    for (int i = 0; i < kItems; ++i) {
      int a = static_cast<int>(rng() % steps), b = static_cast<int>(rng() % steps);
      if (trial % 3 == 0) {
        a = i * steps / 2 / kItems;
        b = rng() % 3 == 0 ? a : steps - 1 - a;
      } else if (trial % 3 == 1) {
        b = std::min(steps - 1, a + static_cast<int>(rng() % 4));
      }
      items.push_back({1 + rng() % sizes, std::min(a, b), std::max(a, b)});
    }
    for (const size_t offset : PackBlocks(items).offsets) digest = digest * 31 + offset;
  }
  EXPECT_EQ(digest, 7665460191327376390u);
}

}  // namespace
}  // namespace gyre
