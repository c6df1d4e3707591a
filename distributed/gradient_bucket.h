// gradient_bucket.h: groups gradients, in the order backward finishes them, into buckets that are
// each summed by one allreduce.  A pure function, so ranks agree without talking.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gyre {

struct GradientBucket {
  int first = 0, last = 0;  // half-open range of gradients, in the order given
  size_t bytes = 0;
};

// Fills each bucket until adding the next gradient would exceed bucket_bytes; a larger gradient has
// a bucket of its own.  `gradient_bytes` in the order of completion (reverse layer order).
std::vector<GradientBucket> AssignBuckets(std::span<const size_t> gradient_bytes,
                                          size_t bucket_bytes);

// Likewise, to sum under backward: buckets of worthwhile_bytes (collectives/selector.h), or less
// where there would not be three, and the first of a quarter, for it comes while nothing is summed.
std::vector<GradientBucket> FitBuckets(std::span<const size_t> gradient_bytes,
                                       size_t worthwhile_bytes);

}  // namespace gyre
