#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "engine/training/net/plan/net_trace.h"

namespace gyre {
namespace {

// FLOP/s of a core, roughly.  A GPU has hundreds of times as many.  Durations of steps decide which
// copies are hidden and where states are, but no results.
constexpr double kFlopsPerSecond = 1e11;

double SecondsOf(double flops) { return flops / kFlopsPerSecond; }

// A sent bucket is summed while this many later buckets are completed.
constexpr size_t kBucketsUnderWay = 2;

// Whether forward may run again.  It then has one slice, and writes only outputs, saved states and
// scratch.
bool IsRepeatable(const NetNode& node) {
  return node.spec.slices == 1 && !node.recomputed &&
         std::ranges::all_of(node.spec.states, [](const StateSpec& state) {
           const bool made = state.kind == StateKind::kOutput || state.kind == StateKind::kSaved ||
                             state.kind == StateKind::kScratch;
           return made || (state.forward & kWrite) == 0;
         });
}

class Program {
 public:
  Program(const TraceInput& in, NetTrace& trace)
      : in_(in),
        net_(in.spec),
        order_(in.order),
        runs_(!in.spec.train || in.spec.shape.works()),
        updates_(in.spec.train && in.updates),
        pages_(!in.sent.empty()),
        t_(trace) {}

  void Run() {
    if (net_.train) t_.on_arrival = OnArrival();
    const bool awaits = !t_.on_arrival.empty() && (net_.shape.server || !pages_);
    const bool begins_step = in_.updates == (net_.shape.accumulate == 1);
    awaited_before_.resize(net_.nodes.size());
    for (size_t b = order_.buckets.size(); b-- > 0 && awaits && begins_step;) {
      if (Trains(b)) awaited_before_[order_.buckets[b].node].push_back(b);
    }
    if (!net_.train) t_.trace.of = "the test";
    AddUpload();
    if (runs_) AddNet();
    if (updates_) AddEnd();
    AddReport();
  }

 private:
  void AddNet() {
    for (size_t n = 0; n < net_.nodes.size(); ++n) AddForward(n);
    if (!net_.train) return;
    AddLossGradients();
    for (int n = static_cast<int>(net_.nodes.size()) - 1; n >= 0; --n) AddBackward(n);
  }

  TraceStep& AddStep(std::string name, InstructionKind kind, size_t of = 0, int piece = 0) {
    t_.program.push_back({kind, static_cast<int>(of), piece});
    t_.trace.steps.push_back({.name = std::move(name)});
    return t_.trace.steps.back();
  }
  int steps() const { return static_cast<int>(t_.program.size()); }

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

  bool Sent(size_t b) const { return t_.buckets[b].summed >= 0; }
  bool Trains(size_t b) const { return order_.buckets[b].trains(); }

  void AddUpload() {
    TraceStep& step = AddStep("upload", InstructionKind::kUpload);
    Write(step, t_.step);
    if (!runs_) return;
    for (const NetTrace::Ahead& ahead : t_.ahead) Touch(step, ahead.whole, kRead | kWrite);
    for (int v = 0; v < net_.inputs; ++v) Write(step, t_.values[v]);
    if (t_.homes_apart) {
      for (int state : t_.carried) Write(step, state);  // from its home
    }
  }

  void AddCarry(int n) {
    for (size_t k = 0; k < net_.carried.size(); ++k) {
      if (net_.carried[k].node != n) continue;
      TraceStep& step = AddStep(absl::StrCat("carry on ", t_.trace.states[t_.carried[k]].name),
                                InstructionKind::kCarry, k);
      Read(step, t_.forward_states[n][net_.carried[k].from]);
      Write(step, t_.carried[k]);
    }
  }

  // Adds the step of one slice of a node's forward or backward.
  TraceStep& AddSlice(const char* what, InstructionKind kind, size_t n, int slice) {
    const int slices = net_.nodes[n].spec.slices;
    std::string name = absl::StrCat(what, net_.nodes[n].config->name());
    if (slices > 1) absl::StrAppend(&name, ", piece ", slice, " of ", slices);
    TraceStep& step = AddStep(std::move(name), kind, n, slice);
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
    for (const size_t b : awaited_before_[n]) AddAwait(b);
    const NetNode& node = net_.nodes[n];
    if (node.applied_by_producer) return;
    for (int slice = 0; slice < node.spec.slices; ++slice) {
      TraceStep& step = AddSlice("forward ", InstructionKind::kForward, n, slice);
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
    TraceStep& step = AddSlice("recompute ", InstructionKind::kForwardAgain, n, /*slice=*/0);
    step.seconds = SecondsOf(node.spec.forward_flops);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      TouchIn(/*slice=*/0, step, t_.recompute_states[n][s], node.spec.states[s].forward);
    }
  }

  void AddLossGradients() {
    TraceStep& step = AddStep("loss gradients", InstructionKind::kSeedLosses);
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

  void AddSum(const GradientSum& sum) {
    TraceStep& step = AddStep(sum.name, InstructionKind::kSumTerms, t_.gradient_sums.size());
    t_.gradient_sums.push_back(sum);
    for (int term : sum.terms) Read(step, term);
    if (sum.mean >= 0) Read(step, t_.batch_mean);
    if (sum.mean >= 0) Touch(step, sum.mean, kRead | kWrite);
    if (sum.mean != sum.total) Write(step, sum.total);
  }

  void AddBackward(int n) {
    const NetNode& node = net_.nodes[n];
    if (!node.backward) return;
    for (const GradientSum& sum : t_.gradients.before[n]) AddSum(sum);
    for (int producer : t_.recomputed_before[n]) AddRecompute(producer);
    for (int slice = 0; slice < node.spec.slices; ++slice) {
      AddBackwardStep(n, slice);
      if (slice + 1 == node.spec.slices) AddCarry(n);
      for (const GradientSum& sum : t_.gradients.after[n]) {
        if (sum.slice == slice) AddSum(sum);
      }
      for (; ready_ < order_.buckets.size(); ++ready_) {
        if (!Trains(ready_)) continue;
        const PlannedBucket& next = order_.buckets[ready_];
        if (next.node < n || (next.node == n && next.slice > slice)) break;
        if (updates_) AddReady(ready_);
      }
    }
  }

  void AddBackwardStep(int n, int slice) {
    const NetNode& node = net_.nodes[n];
    TraceStep& step = AddSlice("backward ", InstructionKind::kBackward, n, slice);
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

  // What takes in an exchange that ends in its own time, or none.
  std::vector<InstructionKind> OnArrival() const {
    if (net_.shape.shard_optimizer) return {InstructionKind::kTakeValues};  // also with a server
    if (net_.shape.ranks == 1 || net_.shape.gated() || pages_) return {};
    std::vector<InstructionKind> kinds;
    if (net_.shape.LogsGradients()) kinds.push_back(InstructionKind::kMeasureGradient);
    if (net_.shape.scales_by_norms) kinds.push_back(InstructionKind::kMeasureChange);
    kinds.push_back(InstructionKind::kUpdate);
    return kinds;
  }
  bool UpdatesOnArrival() const {
    return !t_.on_arrival.empty() && t_.on_arrival.back() == InstructionKind::kUpdate;
  }

  // Backward has completed the bucket.
  void AddReady(size_t b) {
    const RunShape& shape = net_.shape;
    if (shape.gates_alone() || (shape.ranks == 1 && !shape.server)) {
      AddMeasure(b);
    } else {
      AddBegin(b);
    }
    if (shape.server) return;
    if (UpdatesAtOnce(shape)) AddUpdate(b);
    if (UpdatesOnArrival()) AddStep("poll", InstructionKind::kPoll);
    if (pages_ && t_.on_arrival.empty() && !shape.gated() && under_way_.size() > kBucketsUnderWay) {
      AddSummed();
    }
  }

  // After backward.
  void AddEnd() {
    const RunShape& shape = net_.shape;
    std::vector<size_t> buckets;
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      if (Trains(b)) buckets.push_back(b);
    }
    if (shape.server) {
      const bool gates = shape.gated() && (runs_ || !shape.gates_alone());
      if (gates && !shape.gates_alone()) AddNorms();
      if (gates) AddGate();
      for (const size_t b : buckets) {
        if (!gates || !shape.gates_alone()) break;
        TouchBucket(AddStep(absl::StrCat("scale bucket ", b), InstructionKind::kScale, b), b);
        AddBegin(b);
      }
      AddStep("clock", InstructionKind::kClock);
      return;
    }
    if (UpdatesOnArrival()) return;
    if (shape.ranks > 1) {
      while (!under_way_.empty()) AddSummed();
      AddNorms();
    }
    AddGate();
    if (!shape.gated()) return;
    if (shape.scales_by_norms && shape.shard_optimizer) {
      for (const size_t b : buckets) AddMeasureChange(b);
      Touch(AddStep("sum norms of changes", InstructionKind::kAddChanges), t_.norms,
            kRead | kWrite);
    }
    for (const size_t b : buckets) AddUpdateOfRanks(b);
  }

  // The next bucket's sum and, unless the gate must know all of them, its update.
  void AddSummed() {
    const size_t b = under_way_.front();
    under_way_.pop_front();
    TraceStep& step = AddStep(absl::StrCat("finish bucket ", b), InstructionKind::kFinish, b);
    if (net_.shape.gated()) return;
    if (!net_.shape.shard_optimizer) TouchUpdated(step, b, /*tile=*/0);  // come while it waits
    AddUpdateOfRanks(b);
  }

  void AddUpdateOfRanks(size_t b) {
    AddUpdate(b);
    if (!net_.shape.shard_optimizer) return;
    // It sends and receives values where the sum came.
    TouchUpdated(AddStep(absl::StrCat("gather bucket ", b), InstructionKind::kGather, b), b,
                 /*tile=*/0, kRead | kWrite);
    if (!pages_) return;
    t_.buckets[b].values = steps();
    TouchUpdated(AddStep(absl::StrCat("receive bucket ", b), InstructionKind::kReceive, b), b,
                 /*tile=*/0, kRead | kWrite);
  }

  void AddMeasure(size_t b) {
    t_.buckets[b].leaves = steps();
    TraceStep& step = AddStep(absl::StrCat("measure bucket ", b), InstructionKind::kMeasure, b);
    TouchBucket(step, b);
    for (const int state : {t_.sums, t_.scratch}) Touch(step, state, kRead | kWrite);
  }

  void AddBegin(size_t b) {
    t_.buckets[b].leaves = steps();
    TouchBucket(AddStep(absl::StrCat("send bucket ", b), InstructionKind::kBegin, b), b);
    under_way_.push_back(b);
  }

  // In halves, a rank knows the norms of its shards alone.
  void AddNorms() {
    if (net_.shape.shard_optimizer) AddStep("sum norms", InstructionKind::kAddNorms);
    AddStep("upload norms", InstructionKind::kUploadNorms);
  }
  void AddGate() { Read(AddStep("gate", InstructionKind::kGate), t_.step); }

  // Padding between gradients is cleared, and new values travel to other ranks in these states.
  void TouchBucket(TraceStep& step, size_t b) {
    for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
      Touch(step, t_.gradients.parameters[order_.gradients[g].parameter], kRead | kWrite);
    }
  }

  // Writes all parameters.  A step's later iterations with this plan take nothing, and leave them.
  void AddAwait(size_t b) {
    t_.buckets[b].values = steps();
    TraceStep& step = AddStep(absl::StrCat("take bucket ", b), InstructionKind::kAwait, b);
    if (Sent(b)) Write(step, t_.buckets[b].summed);
    for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
      Touch(step, t_.parameters[order_.gradients[g].parameter],
            net_.shape.accumulate > 2 ? kRead | kWrite : kWrite);
    }
  }

  // Whether the bucket's update depends on nothing that only the device knows.
  bool CanBeOnHost(size_t b) const {
    return UpdatesAtOnce(net_.shape) && !net_.shape.measures() && TableOf(in_, b) == nullptr;
  }

  void AddUpdate(size_t b) {
    if (net_.shape.LogsGradients()) {
      AddTiles("measure the gradients of bucket ", b, InstructionKind::kMeasureGradient);
    }
    // A shard's was measured before, as all ranks must know all pieces.
    if (net_.shape.scales_by_norms && !net_.shape.shard_optimizer) AddMeasureChange(b);
    t_.buckets[b].update = steps();
    AddTiles("update bucket ", b, InstructionKind::kUpdate);
  }
  void AddMeasureChange(size_t b) {
    AddTiles("measure the change of bucket ", b, InstructionKind::kMeasureChange);
  }
  void AddTiles(const char* what, size_t b, InstructionKind kind) {
    const OptimizerSlots& slots = in_.slots;
    for (int tile = 0; tile < slots.tiles(b); ++tile) {
      TraceStep& step = AddStep(absl::StrCat(what, b, slots.tile_name(b, tile)), kind, b, tile);
      TouchUpdated(step, b, tile);
      if (CanBeOnHost(b)) step.host_bytes = slots.update_bytes(b, TileOf(b, tile).count());
    }
  }
  // With a sharded optimizer, any range.
  ElementRange TileOf(size_t b, int tile) const {
    return in_.slots.tiles(b) == 1 ? ElementRange{0, order_.buckets[b].elements}
                                   : in_.slots.tile(b, tile);
  }
  void TouchUpdated(TraceStep& step, size_t b, int tile, uint8_t summed = kWrite) {
    const OptimizerSlots& slots = in_.slots;
    Read(step, t_.step);
    if (t_.loss_scale >= 0) Touch(step, t_.loss_scale, kRead | kWrite);
    for (int s = 0; s < slots.arrays(b); ++s) {
      Touch(step, t_.buckets[b].slots[s * slots.tiles(b) + tile], kRead | kWrite);
    }
    if (Sent(b)) Touch(step, t_.buckets[b].summed, summed);
    for (const ParameterRange& part : RangesIn(order_, static_cast<int>(b), TileOf(b, tile))) {
      if (!Sent(b)) Touch(step, t_.gradients.parameters[part.parameter], kRead | kWrite);
      Touch(step, t_.parameters[part.parameter], kRead | kWrite);
      TouchTables(step, part.parameter);
    }
  }

  void AddReport() {
    TraceStep& step = AddStep("report", InstructionKind::kReport);
    Read(step, t_.step);
    if (t_.homes_apart) {
      for (int state : t_.carried) Read(step, state);  // to its home
    }
  }

  const TraceInput& in_;
  const NetSpec& net_;
  const GradientOrder& order_;
  const bool runs_;  // not on a rank that only owns
  const bool updates_;
  const bool pages_;                                 // and several ranks
  std::vector<std::vector<size_t>> awaited_before_;  // by node: buckets
  size_t ready_ = 0;                                 // buckets, the first ones
  std::deque<size_t> under_way_;                     // buckets
  NetTrace& t_;
};

}  // namespace

void AddProgram(const TraceInput& input, NetTrace& trace) { Program(input, trace).Run(); }

}  // namespace gyre
