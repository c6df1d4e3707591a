// net_workload.cc: see net_workload.h.

#include "tools/scaling/net_workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/training/model/model.h"

namespace gyre {
namespace {

// As forward runs them: backward takes the slices of a node in their order, so forward's last is
// its first.
std::vector<WorkloadLayer> LayersByFlops(const NetSpec& net) {
  std::vector<WorkloadLayer> layers;
  for (const NetNode& node : net.nodes) {
    const double slices = node.spec.slices;
    WorkloadLayer layer;
    if (!node.applied_by_producer) layer.forward_s = node.spec.forward_flops / slices;
    if (node.backward && !node.undone_by_producer) {
      layer.backward_s = node.spec.backward_flops / slices;
    }
    layers.insert(layers.end(), node.spec.slices, layer);
  }
  return layers;
}

std::vector<WorkloadGradient> GradientsOf(const NetPlan& plan, const ParameterSet& parameters) {
  std::vector<int> first;  // by node: the layer of its first slice
  int layers = 0;
  for (const NetNode& node : plan.spec.nodes) {
    first.push_back(layers);
    layers += node.spec.slices;
  }
  std::vector<WorkloadGradient> gradients;
  int layer = layers;  // a bucket waits for all that come before
  for (const BucketedGradient& gradient : plan.order.gradients) {
    const int slices = plan.spec.nodes[gradient.node].spec.slices;
    layer = std::min(layer, first[gradient.node] + slices - 1 - gradient.slice);
    // A node waits for all its parameters before its first slice.
    gradients.push_back({parameters.all()[gradient.parameter].spec.size_bytes(), layer,
                         std::min(layer, first[gradient.node])});
  }
  return gradients;
}

// Copies that a step makes, and how much longer it takes for them.
absl::Status Page(const NetPlan& plan, const NetWorkloadOptions& options, Workload& workload) {
  AccessTrace trace = plan.trace.trace;
  double traced = 0;
  for (const TraceStep& step : trace.steps) traced += step.seconds;
  for (TraceStep& step : trace.steps) step.seconds *= workload.step_s() / traced;
  ASSIGN_OR_RETURN(const PagingPlan paging,
                   PlanPaging(trace,
                              {.to_device_bytes_per_s = options.copied_bytes_per_s,
                               .to_host_bytes_per_s = options.copied_bytes_per_s},
                              {.capacity_bytes = static_cast<size_t>(options.device_bytes)}));
  const double longer = std::max(1.0, paging.seconds / workload.step_s());
  for (WorkloadLayer& layer : workload.layers) {
    layer.forward_s *= longer;
    layer.backward_s *= longer;
  }
  workload.update_s *= longer;
  workload.paged_in_bytes = static_cast<double>(paging.fetched_bytes);
  workload.paged_out_bytes = static_cast<double>(paging.written_bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Workload> WorkloadOf(const Parsed<NetConfig>& net,
                                    const NetWorkloadOptions& options) {
  const Primitives primitives(DeviceKind::kSim, /*threads=*/1);
  ASSIGN_OR_RETURN(const ModelPlan model, PlanModel(net, {.shape = {.global = options.batch},
                                                          .slots = {"momentum"},
                                                          .primitives = &primitives}));
  const NetPlan& plan = *model.train;
  double flops = 0;
  for (const NetNode& node : plan.spec.nodes) {
    flops += node.spec.forward_flops + (node.backward ? node.spec.backward_flops : 0);
  }
  Workload workload{.name = net.message->name(),
                    .samples = options.batch,
                    .layers = LayersByFlops(plan.spec),
                    .gradients = GradientsOf(plan, model.parameters),
                    .update_s = options.update_s};
  if (!options.parts.empty()) {
    if (options.parts.size() != workload.layers.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected ", workload.layers.size(), " layers, got ", options.parts.size()));
    }
    workload.layers = options.parts;
  }
  double parts = 0;
  for (const WorkloadLayer& layer : workload.layers) parts += layer.forward_s + layer.backward_s;
  const double computed =
      options.step_s > 0 ? options.step_s - options.update_s : flops / options.flops;
  for (WorkloadLayer& layer : workload.layers) {
    layer.forward_s *= computed / parts;
    layer.backward_s *= computed / parts;
  }
  if (options.device_bytes > 0 &&
      options.device_bytes < static_cast<double>(model.device_bytes())) {
    RETURN_IF_ERROR(Page(plan, options, workload));
  }
  return workload;
}

}  // namespace gyre
