// AssignBuckets: properties over random sizes.

#include "distributed/gradient_bucket.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace gyre {
namespace {

TEST(AssignBuckets, NoCapacityOneBucketEach) {
  const std::vector<size_t> bytes = {1, 5, 2};
  EXPECT_EQ(AssignBuckets(bytes, 0).size(), 3u);
}

TEST(AssignBuckets, SizesNearTheLimitDoNotWrap) {
  const std::vector<size_t> bytes = {5, std::numeric_limits<size_t>::max() - 3, 5};
  EXPECT_EQ(AssignBuckets(bytes, std::numeric_limits<size_t>::max() - 1).size(), 3u);
}

TEST(AssignBuckets, EveryGradientOnceAndNoBucketCouldBeLonger) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<size_t> bytes(random() % 40);
    for (size_t& b : bytes) b = random() % 8 == 0 ? 0 : random() % 1000;
    const size_t capacity = random() % 3000;
    const auto buckets = AssignBuckets(bytes, capacity);
    int next = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      const GradientBucket& bucket = buckets[i];
      ASSERT_EQ(bucket.first, next);
      ASSERT_LT(bucket.first, bucket.last);
      next = bucket.last;
      ASSERT_EQ(bucket.bytes, std::accumulate(bytes.begin() + bucket.first,
                                              bytes.begin() + bucket.last, size_t{0}));
      ASSERT_TRUE(bucket.bytes <= capacity || bucket.last - bucket.first == 1);
      if (i + 1 < buckets.size()) {
        ASSERT_GT(bucket.bytes + bytes[bucket.last], capacity);
      }
    }
    ASSERT_EQ(next, static_cast<int>(bytes.size()));
  }
}

TEST(FitBuckets, ThreeWhereThereAreAsManyAndTheFirstSmall) {
  struct Case {
    const char* what;
    std::vector<size_t> bytes;
    std::vector<int> last;
  };
  const Case cases[] = {
      {"none", {}, {}},
      {"one", {5000}, {1}},
      {"two", {10, 10}, {1, 2}},
      {"the first of a quarter", {100, 150, 100, 600, 400, 1}, {2, 4, 6}},
      {"a large first", {3000, 100, 900, 1}, {1, 3, 4}},
      {"halved once", {100, 100, 300, 300, 100}, {1, 3, 5}},
      {"halved until three", {1, 1, 1}, {1, 2, 3}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    std::vector<int> last;
    for (const GradientBucket& bucket : FitBuckets(c.bytes, 1000)) {
      EXPECT_EQ(bucket.first, last.empty() ? 0 : last.back());
      last.push_back(bucket.last);
    }
    EXPECT_EQ(last, c.last);
  }
}

}  // namespace
}  // namespace gyre
