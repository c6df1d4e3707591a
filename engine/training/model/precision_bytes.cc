#include "engine/training/model/model_plan.h"

namespace gyre {

std::vector<PrecisionBytes> BytesInEachPrecision(const Parsed<NetConfig>& net,
                                                 const ModelOptions& options,
                                                 const BytesOfSum& sum) {
  std::vector<PrecisionBytes> all;
  for (const DType precision : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    PrecisionBytes& bytes = all.emplace_back(PrecisionBytes{.precision = precision});
    ModelOptions other = options;
    other.shape.compute = precision;
    other.test_samples = 0;
    other.capacity_bytes = ~size_t{0};
    const absl::StatusOr<ModelPlan> plan = PlanModel(net, other);
    if (!plan.ok()) {
      bytes.refusal = std::string(plan.status().message());
      continue;
    }
    for (const Parameter& parameter : plan->parameters.all()) {
      bytes.parameters += parameter.spec.size_bytes();
    }
    for (const GradientBucket& bucket : plan->train->order.buckets) bytes.gradients += bucket.bytes;
    bytes.activations = plan->train->memory.device_bytes - plan->persistent_bytes();
    bytes.masters = plan->master_bytes();
    bytes.optimizer = plan->slot_bytes();
    bytes.sent = BytesSent(*plan->train, sum);
  }
  return all;
}

}  // namespace gyre
