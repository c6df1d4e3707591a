#include "engine/training/net/net_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/data/batch.h"
#include "engine/runtime/math.h"
#include "engine/training/step_block.h"

namespace gyre {
namespace {

// What a core does in a second, about; a GPU does hundreds of times as much.  Where copies hide
// follows from how long steps are, and where states lie from that; what they compute does not.
constexpr double kFlopsPerSecond = 1e11;

double SecondsOf(double flops) { return flops / kFlopsPerSecond; }

class Tracer {
 public:
  Tracer(const NetSpec& net, const ParameterSet& parameters, const OptimizerSlots& slots,
         std::span<const CarriedHome> homes, const GradientOrder& order,
         std::span<const TouchedTable> tables, const Feed& feed)
      : net_(net),
        parameters_(parameters),
        slots_(slots),
        homes_(homes),
        order_(order),
        tables_(tables),
        feed_(feed),
        carried_(CarriedStates(net)) {}

  NetTrace Run() {
    for (const NetNode& node : net_.nodes) {
      t_.forward_steps.emplace_back(node.spec.pieces, -1);
      t_.backward_steps.emplace_back(node.spec.pieces, -1);
    }
    t_.recompute_steps.assign(net_.nodes.size(), -1);
    t_.carry_steps.assign(carried_.size(), -1);
    AddPersistent();
    AddCarried();
    AddAhead();
    AddTables();
    AddStepBlock();
    AddValues();
    t_.gradients = AddGradients(net_, parameters_, order_, t_.sums_of_batches, t_.trace);
    AddRecomputed();
    AddNodeStates();
    AddUpload();
    for (size_t n = 0; n < net_.nodes.size(); ++n) AddForward(n);
    if (net_.train) {
      AddLossGradients();
      for (int n = static_cast<int>(net_.nodes.size()) - 1; n >= 0; --n) AddBackward(n);
      for (size_t b = 0; b < order_.buckets.size() && !UpdatesAtOnce(net_.shape); ++b) AddUpdate(b);
    }
    AddReport();
    return std::move(t_);
  }

 private:
  int AddState(TraceState state) {
    t_.trace.states.push_back(std::move(state));
    return static_cast<int>(t_.trace.states.size()) - 1;
  }

  // index: where its number is to go.
  TraceStep& AddStep(std::string name, int& index) {
    index = static_cast<int>(t_.trace.steps.size());
    t_.trace.steps.push_back({.name = std::move(name)});
    return t_.trace.steps.back();
  }

  static void Read(TraceStep& step, int state) { step.touches.push_back({state, true, false}); }
  static void Write(TraceStep& step, int state) { step.touches.push_back({state, false, true}); }
  static void Touch(TraceStep& step, int state, uint8_t access) {
    step.touches.push_back({state, (access & kRead) != 0, (access & kWrite) != 0});
  }

  void AddPersistent() {
    t_.parameters.resize(parameters_.all().size());
    // First those that no layer writes: ranks can have one copy of them (Net).
    for (const StateKind kind : {StateKind::kParameter, StateKind::kBuffer}) {
      for (size_t i = 0; i < t_.parameters.size(); ++i) {
        const Parameter& p = parameters_.all()[i];
        if (p.spec.kind != kind) continue;
        t_.parameters[i] =
            AddState({.name = p.name(), .bytes = p.spec.size_bytes(), .persistent = true});
      }
    }
    const size_t buckets = slots_.elements.size();
    for (size_t b = 0; b < buckets; ++b) {
      auto& slots = t_.slots.emplace_back();
      for (int s = 0; s < slots_.kinds + (slots_.has_master(b) ? 1 : 0); ++s) {
        const std::string what = s < slots_.kinds ? absl::StrCat("slot ", s) : "masters";
        slots.push_back(AddState({.name = absl::StrCat(what, " of bucket ", b),
                                  .bytes = slots_.bytes(b),
                                  .persistent = true}));
      }
    }
    for (size_t b = 0; net_.shape.ranks == 1 && net_.shape.accumulate > 1 && b < buckets; ++b) {
      const size_t element = SizeOf(slots_.dtypes[b]);
      t_.sums_of_batches.push_back(
          AddState({.name = absl::StrCat("gradients of bucket ", b),
                    .bytes = static_cast<size_t>(slots_.elements[b]) * element,
                    .persistent = true}));
    }
    for (const CarriedHome& home : homes_) {
      t_.homes.push_back(
          AddState({.name = home.name, .bytes = home.bytes, .persistent = true, .pinned = true}));
    }
    if (net_.shape.loss_scale.dynamic()) {
      t_.loss_scale = AddState({.name = "loss scale",
                                .bytes = sizeof(LossScaleState),
                                .persistent = true,
                                .pinned = true});
    }
  }

  // Of a testing net they are its own, and last from batch to batch of a test; where homes are
  // apart, they come before the upload and go after the report.
  void AddCarried() {
    t_.homes_apart = net_.train && net_.shape.accumulate > 1;
    const bool at_home = net_.train && !t_.homes_apart;
    for (size_t k = 0; k < carried_.size(); ++k) {
      const StateSpec& spec = net_.nodes[carried_[k].node].spec.states[carried_[k].to];
      t_.carried.push_back(at_home ? t_.homes[k]
                                   : AddState({.name = NameOf(net_, carried_[k]),
                                               .bytes = spec.size_bytes(),
                                               .persistent = true,
                                               .pinned = true}));
    }
  }

  // A training step's batch comes while the step before computes, hence persistent.
  void AddAhead() {
    for (int lane = 0; feed_.ahead && lane < (net_.train ? kMostStepsInFlight : 1); ++lane) {
      NetTrace::Ahead& ahead = t_.ahead.emplace_back();
      ahead.whole = AddState({.name = absl::StrCat("batch ahead ", lane),
                              .persistent = net_.train,
                              .pinned = net_.train});
      size_t offset = 0;
      for (size_t input = 0; input < feed_.inputs.size(); ++input) {
        const Value& value = net_.values[input];
        const size_t bytes = static_cast<size_t>(value.shape.elements()) *
                             SizeOf(feed_.type(input, net_.shape.compute));
        t_.trace.states[ahead.whole].bytes = offset + bytes;
        ahead.inputs.push_back(AddState({.name = absl::StrCat(value.name, " ahead ", lane),
                                         .bytes = bytes,
                                         .view_of = ahead.whole,
                                         .view_offset = offset}));
        offset = AfterArray(offset, bytes);
      }
    }
  }

  // Batches add to them, and sums under way use them under the next forward, hence persistent.
  void AddTables() {
    const int ranks = net_.shape.ranks;
    for (const TouchedTable& table : tables_) {
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

  // Of the parameter's table, if it is one's; parameter: -1 where a state is none.
  void TouchTables(TraceStep& step, int parameter) {
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (tables_[t].parameter != parameter) continue;
      const auto& [kept, first, rows, names, values] = t_.tables[t];
      for (const int state : {kept, first, rows, names, values}) {
        if (state >= 0) Touch(step, state, kRead | kWrite);
      }
    }
  }

  void AddStepBlock() {
    size_t end = 0;
    // Also read between steps: sums of squares, what the gate says.
    t_.step = AddState({.name = "step", .persistent = true, .pinned = true});
    const auto part = [&](std::string name, size_t bytes) {
      const size_t offset = end;
      end = RoundUp(offset + bytes, size_t{16});  // as primitives want it
      t_.trace.states[t_.step].bytes = end;
      return AddState(
          {.name = std::move(name), .bytes = bytes, .view_of = t_.step, .view_offset = offset});
    };
    for (size_t i = 0; i < feed_.inputs.size(); ++i) {
      const FedInput& input = feed_.inputs[i];
      const size_t values = feed_.ahead ? input.pixel_values.size() : 0;
      t_.pixel_values.push_back(part(absl::StrCat("pixel values of ", input.name),
                                     values * SizeOf(net_.values[i].dtype)));
    }
    t_.step_block = part("step block", sizeof(StepBlock));
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
    t_.sums = part("sums of squares", order_.buckets.size() * sizeof(double));
    t_.scratch = part("scratch of sums of squares", kSumSquaresScratchBytes);
  }

  void AddValues() {
    const int first = static_cast<int>(t_.trace.states.size());
    for (const Value& value : net_.values) {
      const int self = static_cast<int>(t_.values.size());
      t_.values.push_back(AddState({.name = value.name,
                                    .bytes = value.bytes(),
                                    .view_of = value.memory == self ? -1 : first + value.memory,
                                    .view_offset = value.memory_offset}));
    }
  }

  void AddRecomputed() {
    t_.recomputed.assign(net_.values.size(), -1);
    t_.recomputed_before.resize(net_.nodes.size());
    std::vector<int> reader(net_.values.size(), -1);  // by memory: the first in backward
    for (size_t v = 0; v < net_.values.size(); ++v) {
      int& last = reader[net_.values[v].memory];
      last = std::max(last, LastReaderInBackward(net_, static_cast<int>(v)));
    }
    for (size_t n = 0; n < net_.nodes.size(); ++n) {
      if (!net_.nodes[n].recomputed) continue;
      const int memory = net_.values[net_.nodes[n].outputs[0]].memory;
      t_.recomputed_before[reader[memory]].push_back(static_cast<int>(n));
      if (t_.recomputed[memory] >= 0) continue;
      t_.recomputed[memory] =
          AddState({.name = absl::StrCat(net_.values[memory].name, " recomputed"),
                    .bytes = net_.values[memory].bytes()});
    }
    for (size_t v = 0; v < net_.values.size(); ++v) {
      t_.recomputed[v] = t_.recomputed[net_.values[v].memory];
    }
  }

  void AddNodeStates() {
    for (const NetNode& node : net_.nodes) {
      auto& forward = t_.forward_states.emplace_back();
      auto& backward = t_.backward_states.emplace_back();
      auto& again = t_.recompute_states.emplace_back();
      const int self = static_cast<int>(t_.forward_states.size()) - 1;
      for (size_t s = 0; s < node.spec.states.size(); ++s) {
        const bool metric = static_cast<int>(s) == node.spec.metric;
        const bool records = static_cast<int>(s) == node.spec.records;
        const auto carried = std::ranges::find_if(carried_, [&](const CarriedState& c) {
          return c.node == self && c.to == static_cast<int>(s);
        });
        forward.push_back(metric                      ? t_.metrics[self]
                          : records                   ? t_.records[self]
                          : carried != carried_.end() ? t_.carried[carried - carried_.begin()]
                                                      : StateOf(node, s));
        backward.push_back(node.backward ? LaterStateOf(node, s, forward[s]) : forward[s]);
        again.push_back(node.recomputed ? LaterStateOf(node, s, forward[s]) : forward[s]);
      }
    }
  }

  int LaterStateOf(const NetNode& node, size_t s, int forward) {
    switch (node.spec.states[s].kind) {
      case StateKind::kScratch:
        return StateOf(node, s);
      case StateKind::kInput:
      case StateKind::kOutput: {
        const int again = t_.recomputed[node.value_of(static_cast<int>(s))];
        return again < 0 ? forward : again;
      }
      default:
        return forward;
    }
  }

  int StateOf(const NetNode& node, size_t s) {
    const StateSpec& spec = node.spec.states[s];
    switch (spec.kind) {
      case StateKind::kInput:
      case StateKind::kOutput:
        return t_.values[node.value_of(static_cast<int>(s))];
      case StateKind::kParameter:
      case StateKind::kBuffer:
        return t_.parameters[node.parameters[s]];
      case StateKind::kStatistic:
      case StateKind::kSaved:
      case StateKind::kScratch:
        return AddState({.name = absl::StrCat(node.config->name(), ".", spec.name),
                         .bytes = spec.size_bytes()});
      case StateKind::kCarried:
        break;  // AddCarried has
    }
    return -1;
  }

  void AddUpload() {
    TraceStep& step = AddStep("upload", t_.upload_step);
    Write(step, t_.step);
    for (const NetTrace::Ahead& ahead : t_.ahead) Touch(step, ahead.whole, kRead | kWrite);
    for (int v = 0; v < net_.inputs; ++v) Write(step, t_.values[v]);
    if (t_.homes_apart) {
      for (int state : t_.carried) Write(step, state);  // from its home
    }
  }

  void AddCarry(int n) {
    for (size_t k = 0; k < carried_.size(); ++k) {
      if (carried_[k].node != n) continue;
      TraceStep& step = AddStep(absl::StrCat("carry on ", t_.trace.states[t_.carried[k]].name),
                                t_.carry_steps[k]);
      Read(step, t_.forward_states[n][carried_[k].from]);
      Write(step, t_.carried[k]);
    }
  }

  // A step of a node's forward or backward, of which it has one for each piece.
  TraceStep& AddPiece(const char* what, size_t n, int piece, int& index) {
    const int pieces = net_.nodes[n].spec.pieces;
    std::string name = absl::StrCat(what, net_.nodes[n].config->name());
    if (pieces > 1) absl::StrAppend(&name, ", piece ", piece, " of ", pieces);
    TraceStep& step = AddStep(std::move(name), index);
    Read(step, t_.step_block);
    return step;
  }

  static bool IsTouched(const StateSpec& state, int piece) {
    return !state.piece || state.piece->phase == piece;
  }

  // What an earlier piece has written another adds to.
  static void TouchIn(int piece, TraceStep& step, int state, uint8_t access) {
    if (access == kNone) return;
    Touch(step, state, (access & kWrite) != 0 && piece > 0 ? kRead | kWrite : access);
  }

  void AddForward(size_t n) {
    const NetNode& node = net_.nodes[n];
    if (node.applied_by_producer) return;
    for (int piece = 0; piece < node.spec.pieces; ++piece) {
      TraceStep& step = AddPiece("forward ", n, piece, t_.forward_steps[n][piece]);
      step.seconds = SecondsOf(node.spec.forward_flops / node.spec.pieces);
      for (size_t s = 0; s < node.spec.states.size(); ++s) {
        if (!IsTouched(node.spec.states[s], piece)) continue;
        TouchIn(piece, step, t_.forward_states[n][s], node.spec.states[s].forward);
      }
      for (int output : node.outputs) TouchIn(piece, step, t_.values[output], kWrite);
      step.repeatable = IsRepeatable(node);
    }
    if (!node.backward) AddCarry(static_cast<int>(n));
  }

  void AddRecompute(int n) {
    const NetNode& node = net_.nodes[n];
    TraceStep& step =
        AddStep(absl::StrCat("recompute ", node.config->name()), t_.recompute_steps[n]);
    step.seconds = SecondsOf(node.spec.forward_flops);
    Read(step, t_.step_block);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const uint8_t access = node.spec.states[s].forward;
      if (access != kNone) Touch(step, t_.recompute_states[n][s], access);
    }
  }

  void AddLossGradients() {
    TraceStep& step = AddStep("loss gradients", t_.loss_step);
    Read(step, t_.loss_scale >= 0 ? t_.loss_scale : t_.step);
    for (int v = 0; v < static_cast<int>(net_.values.size()); ++v) {
      // Without parameters above it a loss has no gradient.
      const int gradient = t_.gradients.values[v];
      if (gradient >= 0 && net_.IsLoss(v)) Write(step, gradient);
    }
  }

  void AddSum(GradientSum& sum) {
    TraceStep& step = AddStep(sum.name, sum.step);
    for (int term : sum.terms) Read(step, term);
    Write(step, sum.total);
  }

  void AddBackward(int n) {
    const NetNode& node = net_.nodes[n];
    if (!node.backward) return;
    for (GradientSum& sum : t_.gradients.before[n]) AddSum(sum);
    for (int producer : t_.recomputed_before[n]) AddRecompute(producer);
    for (int piece = 0; piece < node.spec.pieces; ++piece) {
      AddBackwardStep(n, piece);
      if (piece + 1 == node.spec.pieces) AddCarry(n);
      for (GradientSum& sum : t_.gradients.after[n]) {
        if (sum.piece == piece) AddSum(sum);
      }
      for (size_t b = t_.ready_steps.size(); b < order_.buckets.size(); ++b) {
        const BucketedGradient& last = order_.gradients[order_.buckets[b].last - 1];
        if (last.node != n || last.piece != piece) break;
        AddReady(b);
      }
    }
  }

  void AddBackwardStep(int n, int piece) {
    const NetNode& node = net_.nodes[n];
    TraceStep& step = AddPiece("backward ", n, piece, t_.backward_steps[n][piece]);
    step.seconds = SecondsOf(node.spec.backward_flops / node.spec.pieces);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const StateSpec& spec = node.spec.states[s];
      if (!IsTouched(spec, piece)) continue;
      TouchIn(piece, step, t_.backward_states[n][s], spec.backward);
      const int gradient = t_.gradients.nodes[n][s];
      if (gradient < 0 || !Assigns(node.spec, s, piece)) continue;
      TouchTables(step, node.parameters[s]);
      if (spec.kind == StateKind::kParameter) {
        Write(step, gradient);
      } else {
        TouchIn(piece, step, gradient, spec.kind == StateKind::kOutput ? kRead : kWrite);
      }
    }
  }

  void AddReady(size_t b) {
    int& ready = t_.ready_steps.emplace_back(-1);
    if (UpdatesAtOnce(net_.shape)) {
      AddUpdate(b);
      ready = t_.update_steps.back();
    } else if (net_.shape.ranks == 1) {
      TraceStep& step = AddStep(absl::StrCat("measure bucket ", b), ready);
      TouchBucket(step, b);
      TouchSums(step);
    }
  }

  // The padding between gradients is cleared; so are they where batches add to them; they are the
  // values' way to other ranks.
  void TouchBucket(TraceStep& step, size_t b) {
    for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
      Touch(step, t_.gradients.parameters[order_.gradients[g].parameter], kRead | kWrite);
    }
  }

  // Where it is measured.
  void TouchSums(TraceStep& step) {
    for (const int state : {t_.sums, t_.scratch}) Touch(step, state, kRead | kWrite);
  }

  void AddUpdate(size_t b) {
    TraceStep& step = AddStep(absl::StrCat("update bucket ", b), t_.update_steps.emplace_back());
    Read(step, t_.step);
    if (t_.loss_scale >= 0) Touch(step, t_.loss_scale, kRead | kWrite);
    for (int slot : t_.slots[b]) Touch(step, slot, kRead | kWrite);
    TouchBucket(step, b);
    if (UpdatesAtOnce(net_.shape)) TouchSums(step);
    for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
      const int p = order_.gradients[g].parameter;
      Touch(step, t_.parameters[p], kRead | kWrite);
      TouchTables(step, p);
    }
  }

  void AddReport() {
    TraceStep& step = AddStep("report", t_.report_step);
    Read(step, t_.step);
    if (t_.homes_apart) {
      for (int state : t_.carried) Read(step, state);  // to its home
    }
  }

  const NetSpec& net_;
  const ParameterSet& parameters_;
  const OptimizerSlots& slots_;
  const std::span<const CarriedHome> homes_;
  const GradientOrder& order_;
  const std::span<const TouchedTable> tables_;
  const Feed& feed_;
  const std::vector<CarriedState> carried_;
  NetTrace t_;
};

}  // namespace

NetTrace TraceNet(const NetSpec& net, const ParameterSet& parameters, const OptimizerSlots& slots,
                  std::span<const CarriedHome> homes, const GradientOrder& order,
                  std::span<const TouchedTable> tables, const Feed& feed) {
  return Tracer(net, parameters, slots, homes, order, tables, feed).Run();
}

}  // namespace gyre
