// bucket_views.h: a range of a bucket, as an optimizer updates it.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/training/net/plan/net_plan.h"
#include "engine/training/optimizers/optimizer.h"

namespace gyre {

struct BucketViews {
  BucketViews() = default;
  BucketViews(BucketViews&&) = default;  // `parameters` points into `slots`
  BucketViews& operator=(BucketViews&&) = default;

  std::vector<Tensor> slots;
  std::vector<ParameterViews> parameters;
};

// Where a range of a parameter is.
struct RangeMemory {
  absl::FunctionRef<Tensor(const ParameterRange&)> value, gradient;
  absl::FunctionRef<Tensor(int array, const ParameterRange&)> slot;  // masters come last
  std::byte* norms = nullptr;                                        // NormsBytes
};

BucketViews ViewsIn(const NetPlan& plan, const ParameterSet& parameters, int bucket,
                    ElementRange range, const RangeMemory& memory);

}  // namespace gyre
