// gradient_bucket.h: groups gradients into buckets, each of which one allreduce sums.  Pure
// functions, so ranks agree without messages.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gyre {

// Buckets that are summed at once, each in a lane of its own: as many as get ready during a sum of
// a few MB.
inline constexpr int kLanesInOrder = 4;

struct GradientBucket {
  int first = 0, last = 0;  // half-open range of gradients
  size_t bytes = 0;
};

// Fills a bucket until the next gradient would exceed bucket_bytes.  A larger gradient has a bucket
// of its own.  `gradient_bytes` is in the order in which backward completes gradients.
std::vector<GradientBucket> AssignBuckets(std::span<const size_t> gradient_bytes,
                                          size_t bucket_bytes);

// Likewise, for sums under backward.  Halves worthwhile_bytes (collectives/choice/selector.h) until
// there are three buckets.  The first has a quarter, because no other sum runs while it fills.
std::vector<GradientBucket> FitBuckets(std::span<const size_t> gradient_bytes,
                                       size_t worthwhile_bytes);

}  // namespace gyre
