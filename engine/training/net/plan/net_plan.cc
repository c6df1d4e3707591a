#include "engine/training/net/plan/net_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

std::vector<TraceState> HomesOf(const NetSpec& net) {
  std::vector<TraceState> homes;
  for (const CarriedState& carried : net.carried) {
    const StateSpec& state = net.nodes[carried.node].spec.states[carried.to];
    homes.push_back({.name = NameOf(net, carried) + " from step to step",
                     .bytes = static_cast<size_t>(net.shape.accumulate) * state.size_bytes(),
                     .persistent = true,
                     .pinned = true});
  }
  return homes;
}

constexpr int kMostTiles = 32;

// Cuts updates into tiles, so that layers alone set the least device memory.  A bucket has the
// fewest tiles, up to kMostTiles, for which an update touches no more than the largest other step.
// It has kMostTiles if its gradient and parameters alone exceed that.  A table's bucket is not cut,
// as its update visits all rows.  A tile is of whole pieces of parameters.  Precondition: the trace
// is of a training net of one rank, with uncut updates.
void CutUpdates(NetPlan& plan) {
  const GradientOrder& order = plan.order;
  OptimizerSlots& slots = plan.slots;
  AccessTrace others = plan.trace.trace;
  for (size_t step = 0; step < others.steps.size(); ++step) {
    const InstructionKind kind = plan.trace.program[step].kind;
    const bool of_tile = kind == InstructionKind::kMeasureGradient ||
                         kind == InstructionKind::kMeasureChange ||
                         kind == InstructionKind::kUpdate;
    if (of_tile) others.steps[step].touches.clear();
  }
  const size_t largest = FindLargestStep(others).bytes;
  for (TraceStep& step : others.steps) step.touches.clear();
  const size_t always = FindLargestStep(others).bytes;
  for (size_t b = 0; b < slots.buckets.size(); ++b) {
    OptimizerSlots::SlotBucket& bucket = slots.buckets[b];
    if (TableOf(plan, b) || slots.arrays(b) == 0 || bucket.elements == 0) continue;
    size_t bytes = RoundUp(order.buckets[b].bytes, kPlanAlignment);
    for (int g = order.buckets[b].first; g < order.buckets[b].last; ++g) {
      const auto count = static_cast<size_t>(order.gradients[g].count);
      bytes += RoundUp(count * SizeOf(bucket.dtype), kPlanAlignment);
    }
    const size_t room = largest - std::min(largest, always + bytes);
    const size_t of_array = room / static_cast<size_t>(slots.arrays(b)) / kPlanAlignment;
    const size_t least = CeilDiv(slots.bytes(b), kMostTiles * kPlanAlignment);
    size_t pages = std::max(of_array, least);
    if (plan.spec.shape.measures()) {
      const auto piece = static_cast<size_t>(PieceElements(plan.spec.shape, bucket.dtype));
      pages = RoundUp(pages, CeilDiv(piece * SizeOf(slots.dtype(b)), kPlanAlignment));
    }
    bucket.tile_elements = std::min(
        bucket.elements, static_cast<int64_t>(pages * kPlanAlignment / SizeOf(slots.dtype(b))));
  }
}

double BytesOfBucket(const NetPlan& plan, size_t bucket, const BytesOfSum& sum) {
  const TouchedTable* const table = TableOf(plan, bucket);
  const double whole = sum(plan.order.buckets[bucket].bytes, plan.order.buckets[bucket].dtype);
  if (table == nullptr) return whole;
  const int64_t ranks = plan.spec.shape.ranks, rows = table->step_indices;
  const double names = sum(static_cast<size_t>(ranks * rows) * sizeof(double), DType::kF64);
  if (!table->sent_by_rows) return names + whole;
  const auto bytes = static_cast<int64_t>(SizeOf(table->dtype));
  return names + static_cast<double>((ranks - 1) * rows * table->width * bytes);
}

// Sent as a worker to owners, and as an owner to workers.
double BytesOfServer(const NetPlan& plan) {
  const RunShape& shape = plan.spec.shape;
  const int others = shape.workers() - (shape.works() ? 1 : 0);
  double sent = 0;
  for (const TableSpec& table : ServerTables(plan)) {
    const int64_t own = table.parts[shape.rank].count();
    if (shape.works()) sent += static_cast<double>((table.rows - own) * SizeOf(table.wire_type()));
    sent += static_cast<double>(others * own * SizeOf(table.dtype));
  }
  return sent;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetPlan>> PlanNet(const Parsed<NetConfig>& config,
                                                 const ModelOptions& options, const NetPlan* first,
                                                 ParameterSet& parameters) {
  const bool whole = options.shape.turn < 0;
  NetPlan plan;
  ASSIGN_OR_RETURN(plan.spec, InferNet(config,
                                       {.train = options.train,
                                        .recompute = options.recompute,
                                        .shape = options.shape,
                                        .primitives = options.primitives,
                                        .same_parameters_as = first ? &first->spec : nullptr},
                                       parameters));
  plan.feed = options.feed;
  if (options.train) {
    ASSIGN_OR_RETURN(plan.tables,
                     TouchedTables(config, plan.spec, parameters, options.can_send_rows,
                                   /*has_slots=*/!options.slots.empty()));
    plan.order = whole ? OrderGradients(plan.spec, parameters, plan.tables, options.bucket_bytes,
                                        options.fit_buckets)
                       : OrderOfTurn(plan.spec, parameters, first->order);
    plan.pieces = CutIntoPieces(plan.order, plan.spec.shape);
    plan.homes = HomesOf(plan.spec);
  }
  plan.slots.names = options.slots;
  for (const PlannedBucket& bucket : plan.order.buckets) {
    // The largest shard's, so that all ranks have one plan.
    plan.slots.buckets.push_back(
        {.elements = std::ranges::max(bucket.parts, {}, &ElementRange::count).count(),
         .dtype = bucket.dtype});
  }
  if (first) plan.homes = first->homes;
  const bool own_slots = !first || (options.train && whole);
  if (!own_slots) plan.slots = first->slots;
  plan.trace = TraceNet(plan, parameters);
  if (options.train && own_slots && options.pages.planner != PlannerKind::kNone &&
      options.shape.ranks == 1) {
    CutUpdates(plan);
    plan.trace = TraceNet(plan, parameters);
  }
  ASSIGN_OR_RETURN(plan.memory, PlanMemory(plan.trace.trace, ~size_t{0}));
  return std::make_unique<NetPlan>(std::move(plan));
}

absl::StatusOr<std::unique_ptr<NetPlan>> PagedPlan(const NetPlan& plan,
                                                   const ParameterSet& parameters,
                                                   std::vector<int64_t> sent) {
  auto paged = std::make_unique<NetPlan>(plan);
  paged->sent = std::move(sent);
  paged->trace = TraceNet(*paged, parameters);
  ASSIGN_OR_RETURN(paged->memory, PlanMemory(paged->trace.trace, ~size_t{0}));
  return paged;
}

std::unique_ptr<NetPlan> AccumulatingPlan(const NetPlan& plan, const ParameterSet& parameters) {
  if (plan.spec.shape.accumulate == 1) return nullptr;
  auto other = std::make_unique<NetPlan>(plan);
  other->updates = false;
  other->trace = TraceNet(*other, parameters);
  return other;
}

std::vector<Tensor> BatchArrays(const NetPlan& plan) {
  std::vector<Tensor> arrays;
  for (size_t i = 0; i < plan.feed.inputs.size(); ++i) {
    arrays.push_back(
        {nullptr, plan.spec.values[i].shape, plan.feed.type(i, plan.spec.shape.compute)});
  }
  return arrays;
}

ElementRange UpdatedShard(const NetPlan& plan, int bucket) {
  return plan.order.buckets[bucket].parts[plan.spec.shape.rank];
}

std::vector<TableSpec> ServerTables(const NetPlan& plan) {
  std::vector<TableSpec> tables;
  for (const PlannedBucket& bucket : plan.order.buckets) {
    TableSpec& table = tables.emplace_back(TableSpec{.name = absl::StrCat("bucket ", tables.size()),
                                                     .rows = bucket.elements,
                                                     .width = 1,
                                                     .dtype = bucket.dtype,
                                                     .parts = bucket.parts});
    const DType sent_as = plan.spec.shape.WireType(table.dtype);
    if (sent_as != table.dtype) table.wire = sent_as;
  }
  return tables;
}

size_t RowBytes(const NetPlan& plan) {
  size_t bytes = 0;
  for (size_t t = 0; plan.spec.shape.ranks > 1 && t < plan.tables.size(); ++t) {
    const TableStates& states = plan.trace.tables[t];
    const auto all = static_cast<size_t>(plan.tables[t].step_indices * plan.spec.shape.ranks);
    bytes += all * (sizeof(double) + sizeof(int32_t));  // what ranks tell; what all have touched
    if (states.values >= 0) bytes += 2 * plan.trace.trace.states[states.values].bytes;
  }
  return bytes;
}

double BytesSent(const NetPlan& plan, const BytesOfSum& sum) {
  if (plan.spec.shape.server) return BytesOfServer(plan);
  double sent = 0;
  for (size_t b = 0; b < plan.order.buckets.size(); ++b) {
    sent += BytesOfBucket(plan, b, sum);
  }
  return sent;
}

size_t CarriedBytes(const NetPlan& plan) {
  size_t bytes = 0;
  for (const TraceState& home : plan.homes) bytes += home.bytes;
  return bytes;
}

}  // namespace gyre
