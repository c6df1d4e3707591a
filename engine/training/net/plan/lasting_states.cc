#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/data/batches/batch.h"
#include "engine/runtime/math.h"
#include "engine/training/net/plan/net_trace.h"
#include "engine/training/step_scalars.h"

namespace gyre {
namespace {

class LastingStates {
 public:
  LastingStates(const TraceInput& in, const ParameterSet& parameters, NetTrace& trace)
      : in_(in), parameters_(parameters), net_(in.spec), t_(trace) {}

  void Run() {
    AddPersistent();
    AddCarried();
    AddAhead();
    AddTables();
    AddStepBlock();
  }

 private:
  int AddState(TraceState state) { return t_.trace.Add(std::move(state)); }

  void AddPersistent() {
    t_.parameters.resize(parameters_.all().size());
    // Parameters come first, as no layer writes them and ranks can share one copy (Net).
    for (const StateKind kind : {StateKind::kParameter, StateKind::kBuffer}) {
      for (size_t i = 0; i < t_.parameters.size(); ++i) {
        const Parameter& p = parameters_.all()[i];
        if (p.spec.kind != kind) continue;
        t_.parameters[i] =
            AddState({.name = p.name(), .bytes = p.spec.size_bytes(), .persistent = true});
      }
    }
    // A server's owner updates when gradients arrive, during any step.
    const std::optional<RunShape::Server>& server = net_.shape.server;
    for (size_t b = 0; b < in_.slots.buckets.size(); ++b) {
      const bool pinned = server && !server->in_host_memory;
      t_.buckets.push_back({.slots = AddSlots(b, pinned)});
    }
    for (size_t b = 0; net_.shape.accumulate > 1 && b < t_.buckets.size(); ++b) {
      const DType dtype = in_.slots.buckets[b].dtype;
      const bool one_rank = net_.shape.ranks == 1;
      const int64_t elements = one_rank           ? in_.slots.buckets[b].elements
                               : in_.sent.empty() ? 0
                                                  : in_.sent[b];
      const bool apart = AccumulateDType(dtype) != dtype;  // GradientStates::means
      if (apart || (!one_rank && elements == 0)) continue;
      t_.buckets[b].sum_of_batches =
          AddState({.name = absl::StrCat("gradients of bucket ", b),
                    .bytes = static_cast<size_t>(elements) * SizeOf(dtype),
                    .persistent = true});
    }
    for (const TraceState& home : in_.homes) t_.homes.push_back(AddState(home));
    if (net_.shape.loss_scale.dynamic()) {
      t_.loss_scale = AddState({.name = "loss scale",
                                .bytes = sizeof(LossScaleState),
                                .persistent = true,
                                .pinned = true});
    }
  }

  std::vector<int> AddSlots(size_t b, bool pinned) {
    const OptimizerSlots& slots = in_.slots;
    std::vector<int> states;
    for (int array = 0; array < slots.arrays(b); ++array) {
      const std::string what =
          array < slots.kinds() ? absl::StrReplaceAll(slots.names[array], {{"_", " "}}) : "masters";
      for (int tile = 0; tile < slots.tiles(b); ++tile) {
        const auto elements = static_cast<size_t>(slots.tile(b, tile).count());
        states.push_back(
            AddState({.name = absl::StrCat(what, " of bucket ", b, slots.tile_name(b, tile)),
                      .bytes = elements * SizeOf(slots.dtype(b)),
                      .persistent = true,
                      .pinned = pinned}));
      }
    }
    return states;
  }

  // A testing net has its own, which last from batch to batch of a test.  If homes are apart, rows
  // are copied before the upload and after the report.
  void AddCarried() {
    t_.homes_apart = net_.train && net_.shape.accumulate > 1;
    const bool at_home = net_.train && !t_.homes_apart;
    for (size_t k = 0; k < net_.carried.size(); ++k) {
      const StateSpec& spec = net_.nodes[net_.carried[k].node].spec.states[net_.carried[k].to];
      t_.carried.push_back(at_home ? t_.homes[k]
                                   : AddState({.name = NameOf(net_, net_.carried[k]),
                                               .bytes = spec.size_bytes(),
                                               .persistent = true,
                                               .pinned = true}));
    }
  }

  // A training batch arrives while the step before computes, so it is persistent.
  void AddAhead() {
    for (int lane = 0; in_.feed.ahead && lane < (net_.train ? kMostStepsInFlight : 1); ++lane) {
      NetTrace::Ahead& ahead = t_.ahead.emplace_back();
      ahead.whole = AddState({.name = absl::StrCat("batch ahead ", lane),
                              .persistent = net_.train,
                              .pinned = net_.train});
      size_t offset = 0;
      for (size_t input = 0; input < in_.feed.inputs.size(); ++input) {
        const NetValue& value = net_.values[input];
        const size_t bytes = static_cast<size_t>(value.shape.elements()) *
                             SizeOf(in_.feed.type(input, net_.shape.compute));
        t_.trace.states[ahead.whole].bytes = offset + bytes;
        ahead.inputs.push_back(AddState({.name = absl::StrCat(value.name, " ahead ", lane),
                                         .bytes = bytes,
                                         .view_of = ahead.whole,
                                         .view_offset = offset}));
        offset = AfterArray(offset, bytes);
      }
    }
  }

  // Batches add to them, and sums use them during the next forward, so they are persistent.
  void AddTables() {
    const int ranks = net_.shape.ranks;
    for (const TouchedTable& table : in_.tables) {
      const std::string name = parameters_.all()[table.parameter].name();
      const auto state = [&](const char* what, int64_t elements, DType dtype) {
        return AddState({.name = absl::StrCat(what, " of ", name),
                         .bytes = static_cast<size_t>(elements) * SizeOf(dtype),
                         .persistent = true,
                         .pinned = true});
      };
      TableStates& states = t_.tables.emplace_back();
      states.kept = state("indices", table.step_indices, DType::kI32);
      states.first = state("first indices", table.rows, DType::kI32);
      states.rows = state("touched rows", table.step_indices * ranks, DType::kI32);
      if (ranks > 1) states.names = state("own touched rows", table.step_indices, DType::kF64);
      if (!table.sent_by_rows) continue;
      states.values =
          state("values of touched rows", table.step_indices * ranks * table.width, table.dtype);
    }
  }

  void AddStepBlock() {
    size_t end = 0;
    // Also used between steps, for sums of squares and the gate's report.
    t_.step = AddState({.name = "step", .persistent = true, .pinned = true});
    const auto part = [&](std::string name, size_t bytes) {
      const size_t offset = end;
      end = RoundUp(offset + bytes, size_t{16});  // as primitives want it
      t_.trace.states[t_.step].bytes = end;
      return AddState(
          {.name = std::move(name), .bytes = bytes, .view_of = t_.step, .view_offset = offset});
    };
    for (size_t i = 0; i < in_.feed.inputs.size(); ++i) {
      const FedInput& input = in_.feed.inputs[i];
      const size_t values = in_.feed.ahead ? input.pixel_values.size() : 0;
      t_.pixel_values.push_back(part(absl::StrCat("pixel values of ", input.name),
                                     values * SizeOf(net_.values[i].dtype)));
    }
    t_.step_scalars = part("step block", sizeof(StepScalars));
    const auto part_of = [&](const NetNode& node, int s) {
      if (s < 0) return -1;
      const StateSpec& spec = node.spec.states[s];
      return part(absl::StrCat(node.config->name(), ".", spec.name), spec.size_bytes());
    };
    for (const NetNode& node : net_.nodes) {
      t_.metrics.push_back(part_of(node, node.spec.metric));
    }
    for (const NetNode& node : net_.nodes) {
      t_.records.push_back(part_of(node, node.spec.records));
    }
    if (!net_.train) return;
    t_.sums = part("sums of squares", in_.order.buckets.size() * sizeof(double));
    t_.scratch = part("scratch of sums of squares", kSumSquaresScratchBytes);
    if (net_.shape.measures()) t_.norms = part("norms of parameters", NormsBytes(in_.pieces));
    if (net_.shape.accumulate > 1) t_.batch_mean = part("mean of batches", sizeof(BatchMean));
  }

  const TraceInput& in_;
  const ParameterSet& parameters_;
  const NetSpec& net_;
  NetTrace& t_;
};

}  // namespace

void AddLastingStates(const TraceInput& input, const ParameterSet& parameters, NetTrace& trace) {
  LastingStates(input, parameters, trace).Run();
}

}  // namespace gyre
