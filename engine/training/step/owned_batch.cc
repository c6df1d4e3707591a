#include "engine/training/step/owned_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace gyre {

absl::StatusOr<OwnedBatch> OwnedBatch::Create(Device& device, const NetPlan& plan) {
  OwnedBatch owned;
  std::vector<Tensor> arrays = BatchArrays(plan);
  ASSIGN_OR_RETURN(owned.memory,
                   Buffer::Allocate(device, MemoryKind::kPinnedHost, BatchBytes(arrays)));
  owned.batch = BatchAt(owned.memory.data(), std::move(arrays));
  owned.batch.samples.resize(static_cast<size_t>(plan.spec.shape.local));
  std::iota(owned.batch.samples.begin(), owned.batch.samples.end(), 0);
  return owned;
}

int64_t LargestTaken(const NetSpec& net, int value, int64_t otherwise) {
  int64_t largest = -1;
  for (const int reader : net.values[value].consumers) {
    const NetNode& node = net.nodes[reader];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int64_t taken = node.inputs[i] == value ? node.spec.states[i].largest : -1;
      if (taken >= 0) largest = largest < 0 ? taken : std::min(largest, taken);
    }
  }
  return largest < 0 ? otherwise : largest;
}

}  // namespace gyre
