#include "engine/training/net/plan/net_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

// FLOP/s of a core, roughly.  A GPU has hundreds of times as many.  Durations of steps decide which
// copies are hidden and where states are, but no results.
constexpr double kFlopsPerSecond = 1e11;

double SecondsOf(double flops) { return flops / kFlopsPerSecond; }

// A sent bucket is summed while this many later buckets are completed.
constexpr size_t kBucketsUnderWay = 2;

class Tracer {
 public:
  explicit Tracer(const TraceInput& in)
      : in_(in),
        net_(in.net),
        order_(in.order),
        updates_(in.net.train && in.updates),
        carried_(CarriedStates(in.net)) {}

  NetTrace Run() {
    for (const NetNode& node : net_.nodes) {
      t_.forward_steps.emplace_back(node.spec.slices, -1);
      t_.backward_steps.emplace_back(node.spec.slices, -1);
    }
    t_.recompute_steps.assign(net_.nodes.size(), -1);
    t_.carry_steps.assign(carried_.size(), -1);
    t_.take_steps.assign(order_.buckets.size(), -1);
    if (net_.shape.takes(in_.updates)) to_take_ = order_.buckets.size();
    AddLastingStates(in_, t_);
    AddValues();
    AddGradientStates();
    AddRecomputed();
    AddNodeStates();
    AddUpload();
    for (size_t n = 0; n < net_.nodes.size(); ++n) AddForward(n);
    if (!net_.train) t_.trace.of = "the test";
    if (net_.train) {
      AddLossGradients();
      for (int n = static_cast<int>(net_.nodes.size()) - 1; n >= 0; --n) AddBackward(n);
      while (updates_ && t_.update_steps.size() < order_.buckets.size()) {
        t_.last_updates.push_back(AddUpdate());
      }
      for (size_t b = 0; updates_ && b < order_.buckets.size(); ++b) {
        if (!Sent(b) || t_.leave_steps[b] >= 0) continue;
        TouchBucket(AddStep(absl::StrCat("send bucket ", b), t_.leave_steps[b]), b);
      }
    }
    AddReport();
    return std::move(t_);
  }

 private:
  int AddState(TraceState state) { return t_.trace.Add(std::move(state)); }

  // index: receives the step's number.
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

  // Touches the states of the parameter's table, if it has one.  parameter: -1 if there is none.
  void TouchTables(TraceStep& step, int parameter) {
    for (size_t t = 0; t < in_.tables.size(); ++t) {
      if (in_.tables[t].parameter != parameter) continue;
      const auto& [kept, first, rows, names, values] = t_.tables[t];
      for (const int state : {kept, first, rows, names, values}) {
        if (state >= 0) Touch(step, state, kRead | kWrite);
      }
    }
  }

  void AddValues() {
    const int first = static_cast<int>(t_.trace.states.size());
    for (const NetValue& value : net_.values) {
      const int self = static_cast<int>(t_.values.size());
      // A value without a gradient may be exact, as an input or a part of one.
      const bool rounds = self >= net_.inputs && value.needs_gradient;
      t_.values.push_back(AddState({.name = value.name,
                                    .bytes = value.bytes(),
                                    .view_of = value.memory == self ? -1 : first + value.memory,
                                    .view_offset = value.memory_offset,
                                    .may_narrow = rounds && MayNarrow(value.dtype)}));
    }
  }

  bool Sent(size_t b) const { return !in_.sent.empty() && in_.sent[b] > 0; }

  // A sum over ranks needs a bucket at one address, unless it is sent.  A sent bucket, or one
  // rank's, is free once it is sent or applied.
  void AddGradientStates() {
    std::vector<BucketStorage> places;
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      const bool stays = net_.shape.ranks > 1 && !Sent(b);
      places.push_back({.arena = stays ? Arena::kCommunication : Arena::kDevice,
                        .view_of = t_.sums_of_batches.empty() ? -1 : t_.sums_of_batches[b]});
    }
    t_.gradients = AddGradients(net_, in_.parameters, order_, places, t_.trace);
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      const size_t bytes = static_cast<size_t>(order_.elements[b]) * SizeOf(order_.dtypes[b]);
      t_.summed.push_back(
          Sent(b)
              ? AddState({.name = absl::StrCat("summed gradients of bucket ", b), .bytes = bytes})
              : -1);
    }
  }

  bool MayNarrow(DType dtype) const {
    return dtype == DType::kF32 && net_.train && net_.shape.page_activations != DType::kF32;
  }

  // A state smaller than the layer's input is a statistic of it.  Carried rows are the next
  // batch's.  Opaque bytes may be no numbers.
  bool IsSavedActivation(const NetNode& node, const StateSpec& spec) const {
    const bool own = spec.kind == StateKind::kSaved && spec.carried_to < 0 && spec.bytes == 0;
    return own && spec.size_bytes() >= net_.values[node.inputs[0]].bytes();
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
                         .bytes = spec.size_bytes(),
                         .may_narrow = IsSavedActivation(node, spec) && MayNarrow(spec.dtype)});
      case StateKind::kCarried:
        break;  // AddLastingStates has
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

  // Adds the step of one slice of a node's forward or backward.
  TraceStep& AddSlice(const char* what, size_t n, int slice, int& index) {
    const int slices = net_.nodes[n].spec.slices;
    std::string name = absl::StrCat(what, net_.nodes[n].config->name());
    if (slices > 1) absl::StrAppend(&name, ", piece ", slice, " of ", slices);
    TraceStep& step = AddStep(std::move(name), index);
    Read(step, t_.step_scalars);
    return step;
  }

  static bool IsTouched(const StateSpec& state, int slice) {
    return !state.slice || state.slice->phase == slice;
  }

  // A slice adds to the results of earlier slices.
  static void TouchIn(int slice, TraceStep& step, int state, uint8_t access) {
    if (access == kNone) return;
    Touch(step, state, (access & kWrite) != 0 && slice > 0 ? kRead | kWrite : access);
  }

  void AddForward(size_t n) {
    while (to_take_ > 0 && FirstUser(order_, to_take_ - 1) == static_cast<int>(n)) {
      AddTake(--to_take_);
    }
    const NetNode& node = net_.nodes[n];
    if (node.applied_by_producer) return;
    for (int slice = 0; slice < node.spec.slices; ++slice) {
      TraceStep& step = AddSlice("forward ", n, slice, t_.forward_steps[n][slice]);
      step.seconds = SecondsOf(node.spec.forward_flops / node.spec.slices);
      for (size_t s = 0; s < node.spec.states.size(); ++s) {
        if (!IsTouched(node.spec.states[s], slice)) continue;
        TouchIn(slice, step, t_.forward_states[n][s], node.spec.states[s].forward);
      }
      for (int output : node.outputs) TouchIn(slice, step, t_.values[output], kWrite);
      step.repeatable = IsRepeatable(node);
    }
    if (!node.backward) AddCarry(static_cast<int>(n));
  }

  void AddRecompute(int n) {
    const NetNode& node = net_.nodes[n];
    TraceStep& step =
        AddStep(absl::StrCat("recompute ", node.config->name()), t_.recompute_steps[n]);
    step.seconds = SecondsOf(node.spec.forward_flops);
    Read(step, t_.step_scalars);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const uint8_t access = node.spec.states[s].forward;
      if (access != kNone) Touch(step, t_.recompute_states[n][s], access);
    }
  }

  void AddLossGradients() {
    TraceStep& step = AddStep("loss gradients", t_.loss_step);
    Read(step, t_.loss_scale >= 0 ? t_.loss_scale : t_.step);
    if (const int n = net_.shape.accumulate > 1 ? net_.CountingLoss() : -1; n >= 0) {
      Read(step, t_.forward_states[n][net_.nodes[n].spec.count]);
    }
    for (int v = 0; v < static_cast<int>(net_.values.size()); ++v) {
      // Without parameters above it a loss has no gradient.
      const int gradient = t_.gradients.values[v];
      if (gradient >= 0 && net_.IsLoss(v)) Write(step, gradient);
    }
  }

  void AddSum(GradientSum& sum) {
    TraceStep& step = AddStep(sum.name, sum.step);
    for (int term : sum.terms) Read(step, term);
    if (sum.mean >= 0) Read(step, t_.batch_mean);
    if (sum.mean >= 0) Touch(step, sum.mean, kRead | kWrite);
    if (sum.mean != sum.total) Write(step, sum.total);
  }

  void AddBackward(int n) {
    const NetNode& node = net_.nodes[n];
    if (!node.backward) return;
    for (GradientSum& sum : t_.gradients.before[n]) AddSum(sum);
    for (int producer : t_.recomputed_before[n]) AddRecompute(producer);
    for (int slice = 0; slice < node.spec.slices; ++slice) {
      AddBackwardStep(n, slice);
      if (slice + 1 == node.spec.slices) AddCarry(n);
      for (GradientSum& sum : t_.gradients.after[n]) {
        if (sum.slice == slice) AddSum(sum);
      }
      for (size_t b = t_.ready_steps.size(); b < order_.buckets.size(); ++b) {
        const BucketedGradient& last = order_.gradients[order_.buckets[b].last - 1];
        if (last.node != n || last.slice != slice) break;
        AddReady(b);
      }
    }
  }

  void AddBackwardStep(int n, int slice) {
    const NetNode& node = net_.nodes[n];
    TraceStep& step = AddSlice("backward ", n, slice, t_.backward_steps[n][slice]);
    step.seconds = SecondsOf(node.spec.backward_flops / node.spec.slices);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const StateSpec& spec = node.spec.states[s];
      if (!IsTouched(spec, slice)) continue;
      TouchIn(slice, step, t_.backward_states[n][s], spec.backward);
      const int gradient = t_.gradients.nodes[n][s];
      if (gradient < 0 || !Assigns(node.spec, s, slice)) continue;
      TouchTables(step, node.parameters[s]);
      if (spec.kind == StateKind::kParameter) {
        Write(step, gradient);
      } else {
        TouchIn(slice, step, gradient, spec.kind == StateKind::kOutput ? kRead : kWrite);
      }
    }
  }

  void AddReady(size_t b) {
    int& ready = t_.ready_steps.emplace_back(-1);
    int& leave = t_.leave_steps.emplace_back(-1);
    std::vector<int>& behind = t_.updates_behind.emplace_back();
    if (updates_ && (Sent(b) || net_.shape.ranks == 1)) {
      const bool measures = net_.shape.ranks == 1 || net_.shape.gates_alone();
      TraceStep& step =
          AddStep(absl::StrCat(measures ? "measure bucket " : "send bucket ", b), ready);
      TouchBucket(step, b);
      for (const int state : {t_.sums, t_.scratch}) {
        if (measures) Touch(step, state, kRead | kWrite);
      }
      if (!measures) leave = ready;
    }
    if (!updates_ || net_.shape.server) {
      t_.update_steps.emplace_back();
      return;
    }
    // A bucket that waits for the gate, or is updated in shards, comes at the end.
    const bool held = net_.shape.gated() || net_.shape.shard_optimizer;
    const bool sum_has_come = !in_.sent.empty() && !held && b >= kBucketsUnderWay;
    if (UpdatesAtOnce(net_.shape) || sum_has_come) behind.push_back(AddUpdate());
  }

  // Padding between gradients is cleared, and new values travel to other ranks in these states.
  void TouchBucket(TraceStep& step, size_t b) {
    for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
      Touch(step, t_.gradients.parameters[order_.gradients[g].parameter], kRead | kWrite);
    }
  }

  // Writes all parameters.  A step's later iterations with this plan take nothing, and leave them.
  void AddTake(size_t b) {
    TraceStep& step = AddStep(absl::StrCat("take bucket ", b), t_.take_steps[b]);
    if (Sent(b)) Write(step, t_.summed[b]);
    for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
      Touch(step, t_.parameters[order_.gradients[g].parameter],
            net_.shape.accumulate > 2 ? kRead | kWrite : kWrite);
    }
  }

  // Whether the bucket's update depends on nothing that only the device knows.
  bool CanBeOnHost(size_t b) const {
    const int first = order_.gradients[order_.buckets[b].first].parameter;
    return UpdatesAtOnce(net_.shape) && TableOf(in_.tables, first) == nullptr;
  }

  // Adds the next bucket's update, and returns the bucket.
  int AddUpdate() {
    const size_t b = t_.update_steps.size();
    t_.update_steps.emplace_back();
    for (int tile = 0; tile < in_.slots.tiles(b); ++tile) AddUpdate(b, tile);
    return static_cast<int>(b);
  }
  void AddUpdate(size_t b, int tile) {
    const OptimizerSlots& slots = in_.slots;
    TraceStep& step = AddStep(absl::StrCat("update bucket ", b, slots.tile_name(b, tile)),
                              t_.update_steps[b].emplace_back());
    Read(step, t_.step);
    if (t_.loss_scale >= 0) Touch(step, t_.loss_scale, kRead | kWrite);
    for (int s = 0; s < slots.arrays(b); ++s) {
      Touch(step, t_.slots[b][s * slots.tiles(b) + tile], kRead | kWrite);
    }
    if (Sent(b)) Write(step, t_.summed[b]);
    // With a sharded optimizer, any range.
    const ElementRange range =
        slots.tiles(b) == 1 ? ElementRange{0, order_.elements[b]} : slots.tile(b, tile);
    if (CanBeOnHost(b)) step.host_bytes = slots.update_bytes(b, range.count());
    const int bucket = static_cast<int>(b);
    for (const ParameterRange& part : RangesIn(order_, in_.parameters, bucket, range)) {
      if (!Sent(b)) Touch(step, t_.gradients.parameters[part.parameter], kRead | kWrite);
      Touch(step, t_.parameters[part.parameter], kRead | kWrite);
      TouchTables(step, part.parameter);
    }
  }

  void AddReport() {
    TraceStep& step = AddStep("report", t_.report_step);
    Read(step, t_.step);
    if (t_.homes_apart) {
      for (int state : t_.carried) Read(step, state);  // to its home
    }
  }

  const TraceInput& in_;
  const NetSpec& net_;
  const GradientOrder& order_;
  const bool updates_;
  const std::vector<CarriedState> carried_;
  size_t to_take_ = 0;  // buckets, the first ones
  NetTrace t_;
};

}  // namespace

NetTrace TraceNet(const TraceInput& input) { return Tracer(input).Run(); }

}  // namespace gyre
