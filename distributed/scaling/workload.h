// workload.h: the computation of one rank in a training step, layer by layer, and its gradients.
// Plain data, of a net or made up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gyre {

struct WorkloadLayer {
  double forward_s = 0, backward_s = 0;
};

// A gradient, or a bucket of several that are exchanged together.  Complete after backward of
// `layer`.  Its update is needed before forward of `first_reader`, which is the same layer, or the
// first of a node that is cut into several.
struct WorkloadGradient {
  size_t bytes = 0;
  int layer = 0;
  int first_reader = layer;
};

struct Workload {
  std::string name = {};
  int64_t samples = 1;                           // in one rank's step
  std::vector<WorkloadLayer> layers = {};        // in the order of forward
  std::vector<WorkloadGradient> gradients = {};  // in the order of backward: layers descend
  double update_s = 0;                           // all parameters, in proportion to their bytes
  // Pages that a step copies between host and device, if the device cannot hold the net.
  double paged_in_bytes = 0, paged_out_bytes = 0;

  // A step of one rank alone.
  double step_s() const;
  double gradient_bytes() const;
};

// Equal layers with a gradient each.  Backward takes twice as long as forward.
Workload EqualLayers(int layers, double step_s, double update_s, double gradient_bytes);

// Buckets as training fits them (distributed/gradient_bucket.h), for this worthwhile size of a sum.
std::vector<WorkloadGradient> FitBuckets(const Workload& workload, size_t worthwhile_bytes);

}  // namespace gyre
