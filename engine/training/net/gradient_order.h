// gradient_order.h: in which order backward finishes the gradients of a net's parameters, and the
// buckets that they travel in.
#pragma once

#include <vector>

#include "distributed/gradient_bucket.h"
#include "engine/training/net/net_spec.h"

namespace gyre {

// The nodes that use a parameter, by position; backward comes to the first of them last.
struct ParameterUsers {
  int first = -1, last = -1;
};
std::vector<ParameterUsers> UsersOfParameters(const NetSpec& net, size_t parameters);

// A trained parameter's gradient and the bucket it travels in, in the order backward finishes them.
struct BucketedGradient {
  int parameter = 0;  // index into the ParameterSet
  int node = 0;       // after whose backward it is complete
};

// The gradients of a training net in completion order, and their buckets: by FitBuckets, or by
// AssignBuckets.
struct GradientOrder {
  std::vector<BucketedGradient> gradients;
  std::vector<GradientBucket> buckets;
};
GradientOrder OrderGradients(const NetSpec& net, const ParameterSet& parameters,
                             size_t bucket_bytes, bool fit_buckets);

}  // namespace gyre
