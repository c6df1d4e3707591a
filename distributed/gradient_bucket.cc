// gradient_bucket.cc: see gradient_bucket.h.

#include "distributed/gradient_bucket.h"

namespace gyre {

std::vector<GradientBucket> AssignBuckets(std::span<const size_t> gradient_bytes,
                                          size_t bucket_bytes) {
  std::vector<GradientBucket> buckets;
  for (int i = 0; i < static_cast<int>(gradient_bytes.size()); ++i) {
    const size_t bytes = gradient_bytes[i];
    const bool fits =
        !buckets.empty() && bytes <= bucket_bytes && buckets.back().bytes <= bucket_bytes - bytes;
    if (!fits) buckets.push_back({i, i, 0});
    buckets.back().last = i + 1;
    buckets.back().bytes += bytes;
  }
  return buckets;
}

}  // namespace gyre
