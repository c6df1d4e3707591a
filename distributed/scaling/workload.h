// workload.h: what one rank computes in a training step, layer by layer, and which gradients it
// has to exchange when.  Plain data; a net's or made up.
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

// Complete behind backward of a layer, and its update needed before the next forward of its first
// reader: the same, or where a node's work is cut into several layers the node's first.
struct WorkloadGradient {
  size_t bytes = 0;
  int layer = 0;
  int first_reader = layer;
};

struct Workload {
  std::string name = {};
  int64_t samples = 1;                           // of one rank's step
  std::vector<WorkloadLayer> layers = {};        // as forward runs them
  std::vector<WorkloadGradient> gradients = {};  // as backward completes them: layers descend
  double update_s = 0;                           // of all parameters, in proportion to their bytes
  // What a step copies between host and device because the device does not hold the net, each way.
  double paged_in_bytes = 0, paged_out_bytes = 0;

  // Of a rank that is alone.
  double step_s() const;
  double gradient_bytes() const;
};

// Layers that are all the same, with a gradient each; backward takes twice as long as forward.
Workload EqualLayers(int layers, double step_s, double update_s, double gradient_bytes);

// Gradients that are exchanged together, behind backward of `layer` and before forward of
// `first_reader`.
struct WorkloadBucket {
  double bytes = 0;
  int layer = 0;
  int first_reader = layer;
};
// As training fits them (distributed/gradient_bucket.h), for sums of which so many bytes are worth
// one.
std::vector<WorkloadBucket> FitBuckets(const Workload& workload, size_t worthwhile_bytes);
// A gradient each.
std::vector<WorkloadBucket> BucketsOfOne(const Workload& workload);

}  // namespace gyre
