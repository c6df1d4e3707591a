#include "distributed/scaling/workload.h"

#include <algorithm>

#include "distributed/gradient_bucket.h"

namespace gyre {

double Workload::step_s() const {
  double seconds = update_s;
  for (const WorkloadLayer& layer : layers) seconds += layer.forward_s + layer.backward_s;
  return seconds;
}

double Workload::gradient_bytes() const {
  double bytes = 0;
  for (const WorkloadGradient& gradient : gradients) bytes += static_cast<double>(gradient.bytes);
  return bytes;
}

Workload EqualLayers(int layers, double step_s, double update_s, double gradient_bytes) {
  Workload workload{.name = "equal layers", .update_s = update_s};
  const double third = (step_s - update_s) / layers / 3;
  workload.layers.assign(layers, {third, 2 * third});
  for (int layer = layers - 1; layer >= 0; --layer) {
    workload.gradients.push_back({static_cast<size_t>(gradient_bytes / layers), layer});
  }
  return workload;
}

std::vector<WorkloadGradient> FitBuckets(const Workload& workload, size_t worthwhile_bytes) {
  std::vector<size_t> bytes;
  for (const WorkloadGradient& gradient : workload.gradients) bytes.push_back(gradient.bytes);
  std::vector<WorkloadGradient> buckets;
  for (const GradientBucket& bucket : FitBuckets(bytes, worthwhile_bytes)) {
    const WorkloadGradient& last = workload.gradients[bucket.last - 1];
    buckets.push_back({bucket.bytes, last.layer, last.first_reader});
  }
  return buckets;
}

}  // namespace gyre
