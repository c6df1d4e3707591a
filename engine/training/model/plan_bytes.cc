// The bytes of a model's plan that are its own, whatever the nets run.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "distributed/process_group.h"
#include "engine/runtime/math.h"
#include "engine/training/model/model_plan.h"
#include "engine/training/step_scalars.h"
#include "memory/resident/memory_plan.h"

namespace gyre {

size_t ModelPlan::parameter_bytes() const {
  size_t bytes = 0;
  for (const Parameter& parameter : parameters.all()) {
    const bool written = parameter.spec.kind == StateKind::kBuffer;
    if (!written) bytes += RoundUp(parameter.spec.size_bytes(), kPlanAlignment);
  }
  return bytes;
}

size_t ModelPlan::allreduce_bytes() const {
  if (train == nullptr || options.device_allreduce.empty()) return 0;
  size_t longest = 0;
  for (size_t b = 0; b < train->order.buckets.size(); ++b) {
    const TouchedTable* const table = TableOf(*train, b);
    if (table != nullptr && table->sent_by_rows) continue;
    longest = std::max(longest, static_cast<size_t>(train->order.buckets[b].elements) *
                                    SizeOf(train->order.buckets[b].dtype));
  }
  return ProcessGroup::DeviceBytes(options.device_allreduce, longest, options.shape.ranks);
}

ServerBytes ModelPlan::ServerBytesBy(bool background) const {
  const RunShape& shape = options.shape;
  if (train == nullptr || !shape.server) return {};
  const std::vector<TableSpec> tables = ServerTables(*train);
  const auto of = [&](int rank) {
    return BytesOfWholeTables(tables, shape.ranks, shape.server->dedicated, rank,
                              shape.server->sync, background, shape.server->in_host_memory);
  };
  ServerBytes bytes = of(shape.rank);
  if (shape.server->in_host_memory) {
    bytes.pinned += slot_bytes() + master_bytes();
    return bytes;
  }
  // And what owners' updates read (ServerSync), and what measures their sums (ServerNorms).
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const ServerBytes its = of(rank);
    const size_t dropped = static_cast<size_t>(its.chunks) * sizeof(int64_t);
    bytes.device = std::max(bytes.device, its.device + dropped);
  }
  bytes.device += tables.size() * sizeof(UpdateScalars);
  if (shape.server->sync != Sync::kBsp || !shape.gated()) return bytes;
  size_t pieces = 0;
  for (const TableSpec& table : tables) {
    pieces += shape.MeasuredRanges(table.rows, table.dtype).size();
  }
  bytes.device += NormsBytes(train->pieces) + kSumSquaresScratchBytes +
                  pieces * (sizeof(ElementRange) + (kSquareLanes + 1) * sizeof(double));
  return bytes;
}

size_t ModelPlan::slot_bytes() const {
  size_t bytes = 0;
  for (size_t b = 0; b < train->order.buckets.size(); ++b) {
    bytes += train->slots.kinds() * train->slots.bytes(b);
  }
  return bytes;
}

size_t ModelPlan::master_bytes() const {
  size_t bytes = 0;
  for (size_t b = 0; b < train->order.buckets.size(); ++b) {
    if (train->slots.has_master(b)) bytes += train->slots.bytes(b);
  }
  return bytes;
}

std::string ModelPlan::Fingerprint() const {
  std::string text;
  for (const Parameter& p : parameters.all()) {
    absl::StrAppend(&text, p.name(), " ", std::string(DTypeName(p.spec.dtype)), " ",
                    p.spec.size_bytes(), " ", p.spec.layout, "\n");
  }
  if (train) {
    for (const GradientBucket& b : train->order.buckets) {
      absl::StrAppend(&text, "bucket ", b.first, " ", b.last, "\n");
    }
    for (const TouchedTable& table : train->tables) {
      if (!table.sent_by_rows) continue;
      absl::StrAppend(&text, "rows of ", parameters.all()[table.parameter].name(), "\n");
    }
    for (const CarriedState& carried : train->spec.carried) {
      const StateSpec& state = train->spec.nodes[carried.node].spec.states[carried.to];
      const int64_t samples = options.shape.global * options.shape.accumulate;
      absl::StrAppend(&text, "carried ", NameOf(train->spec, carried), " ",
                      std::string(DTypeName(state.dtype)), " ",
                      state.shape.With(state.batch_axis, samples).ToString(), "\n");
    }
  }
  return text;
}

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
    bytes.activations = plan->train->memory.device_bytes;
    for (const TraceState& state : plan->train->trace.trace.states) {
      const bool own = state.view_of < 0 && state.arena == Arena::kDevice;
      if (state.persistent && own) bytes.activations -= state.bytes;
    }
    bytes.masters = plan->master_bytes();
    bytes.optimizer = plan->slot_bytes();
    bytes.sent = BytesSent(*plan->train, sum);
  }
  return all;
}

}  // namespace gyre
