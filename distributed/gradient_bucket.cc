#include "distributed/gradient_bucket.h"

#include <algorithm>

namespace gyre {
namespace {

constexpr size_t kFewestBuckets = 3;

std::vector<GradientBucket> Assign(std::span<const size_t> gradient_bytes, size_t first_bytes,
                                   size_t bucket_bytes) {
  std::vector<GradientBucket> buckets;
  for (int i = 0; i < static_cast<int>(gradient_bytes.size()); ++i) {
    const size_t bytes = gradient_bytes[i];
    const size_t most = buckets.size() == 1 ? first_bytes : bucket_bytes;
    const bool fits = !buckets.empty() && bytes <= most && buckets.back().bytes <= most - bytes;
    if (!fits) buckets.push_back({i, i, 0});
    buckets.back().last = i + 1;
    buckets.back().bytes += bytes;
  }
  return buckets;
}

}  // namespace

std::vector<GradientBucket> AssignBuckets(std::span<const size_t> gradient_bytes,
                                          size_t bucket_bytes) {
  return Assign(gradient_bytes, bucket_bytes, bucket_bytes);
}

std::vector<GradientBucket> FitBuckets(std::span<const size_t> gradient_bytes,
                                       size_t worthwhile_bytes) {
  for (size_t most = worthwhile_bytes;; most /= 2) {
    std::vector<GradientBucket> buckets = Assign(gradient_bytes, most / 4, most);
    if (most == 0 || buckets.size() >= std::min(kFewestBuckets, gradient_bytes.size())) {
      return buckets;
    }
  }
}

}  // namespace gyre
