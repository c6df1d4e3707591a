#include "engine/training/net_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/data/batch.h"
#include "engine/runtime/math.h"
#include "engine/training/step_block.h"

namespace gyre {

namespace {

// The nodes that use a parameter, by position; backward comes to the first of them last.
struct Users {
  int first = -1, last = -1;
};

std::vector<Users> UsersOfParameters(const NetSpec& net, size_t parameters) {
  std::vector<Users> users(parameters);
  for (int n = 0; n < static_cast<int>(net.nodes.size()); ++n) {
    for (int p : net.nodes[n].parameters) {
      if (p < 0) continue;
      if (users[p].first < 0) users[p].first = n;
      users[p].last = n;
    }
  }
  return users;
}

}  // namespace

GradientOrder OrderGradients(const NetSpec& net, const ParameterSet& parameters,
                             size_t bucket_bytes) {
  GradientOrder order;
  std::vector<size_t> bytes;
  const std::vector<Users> users = UsersOfParameters(net, parameters.all().size());
  for (int n = static_cast<int>(net.nodes.size()) - 1; n >= 0; --n) {
    for (int p : net.nodes[n].parameters) {
      if (p < 0 || users[p].first != n || !parameters.all()[p].trained()) continue;
      order.gradients.push_back({.parameter = p, .node = n});
      bytes.push_back(parameters.all()[p].spec.size_bytes());
    }
  }
  order.buckets = AssignBuckets(bytes, bucket_bytes);
  return order;
}

namespace {

class Tracer {
 public:
  Tracer(const NetSpec& net, const ParameterSet& parameters, int slots, const GradientOrder& order,
         const Feed& feed)
      : net_(net),
        parameters_(parameters),
        slots_(slots),
        order_(order),
        feed_(feed),
        users_(UsersOfParameters(net, parameters.all().size())) {}

  NetTrace Run() {
    AddPersistent();
    AddAhead();
    AddStepBlock();
    AddParameterGradients();
    AddValues();
    AddNodeStates();
    AddUpload();
    for (size_t n = 0; n < net_.nodes.size(); ++n) AddForward(n);
    if (net_.train) {
      AddLossGradients();
      for (int n = static_cast<int>(net_.nodes.size()) - 1; n >= 0; --n) AddBackward(n);
      AddUpdates();
    }
    AddReport();
    return std::move(t_);
  }

 private:
  int AddState(TraceState state) {
    t_.trace.states.push_back(std::move(state));
    return static_cast<int>(t_.trace.states.size()) - 1;
  }

  TraceStep& AddStep(std::string name) {
    t_.trace.steps.push_back({.name = std::move(name)});
    return t_.trace.steps.back();
  }

  static void Read(TraceStep& step, int state) { step.touches.push_back({state, true, false}); }
  static void Write(TraceStep& step, int state) { step.touches.push_back({state, false, true}); }
  static void Touch(TraceStep& step, int state, uint8_t access) {
    step.touches.push_back({state, (access & kRead) != 0, (access & kWrite) != 0});
  }

  void AddPersistent() {
    for (const Parameter& p : parameters_.all()) {
      t_.parameters.push_back(
          AddState({.name = p.name(), .bytes = p.spec.size_bytes(), .persistent = true}));
    }
    for (const Parameter& p : parameters_.all()) {
      auto& slots = t_.slots.emplace_back();
      for (int s = 0; p.trained() && s < slots_; ++s) {
        slots.push_back(AddState({.name = absl::StrCat(p.name(), " slot ", s),
                                  .bytes = p.spec.size_bytes(),
                                  .persistent = true}));
      }
    }
  }

  // A training step's batch comes while the step before computes, hence persistent.
  void AddAhead() {
    for (int lane = 0; feed_.ahead && lane < (net_.train ? kMostStepsInFlight : 1); ++lane) {
      NetTrace::Ahead& ahead = t_.ahead.emplace_back();
      ahead.whole =
          AddState({.name = absl::StrCat("batch ahead ", lane), .persistent = net_.train});
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

  void AddStepBlock() {
    size_t end = 0;
    t_.step = AddState({.name = "step"});
    const auto part = [&](std::string name, size_t bytes) {
      const size_t offset = end;
      end = RoundUp(offset + bytes, size_t{16});  // as primitives want it
      t_.trace.states[t_.step].bytes = end;
      return AddState(
          {.name = std::move(name), .bytes = bytes, .view_of = t_.step, .view_offset = offset});
    };
    for (const FedInput& input : feed_.inputs) {
      const size_t values = feed_.ahead ? input.pixel_values.size() : 0;
      t_.pixel_values.push_back(
          part(absl::StrCat("pixel values of ", input.name), values * SizeOf(net_.shape.compute)));
    }
    t_.step_block = part("step block", sizeof(StepBlock));
    for (const NetNode& node : net_.nodes) {
      const int metric = node.spec.metric;
      t_.metrics.push_back(
          metric < 0 ? -1
                     : part(absl::StrCat(node.config->name(), ".", node.spec.states[metric].name),
                            node.spec.states[metric].size_bytes()));
    }
    if (!net_.train) return;
    t_.sums = part("sums of squares", order_.buckets.size() * sizeof(double));
    t_.scratch = part("scratch of sums of squares", kSumSquaresScratchBytes);
  }

  void AddParameterGradients() {
    t_.gradients.assign(parameters_.all().size(), -1);
    t_.shared_gradients.resize(parameters_.all().size());
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
        const int p = order_.gradients[g].parameter;
        t_.gradients[p] =
            AddState({.name = absl::StrCat("gradient of ", parameters_.all()[p].name()),
                      .bytes = parameters_.all()[p].spec.size_bytes(),
                      .arena = Arena::kCommunication,
                      .contiguous_group = static_cast<int>(b)});
      }
    }
  }

  size_t Bytes(const Value& value) const {
    return static_cast<size_t>(value.shape.elements()) * SizeOf(value.dtype);
  }

  // The node, if there is just one, whose backward assigns the gradient of `value`.
  std::vector<int> GradientWriters(const Value& value) const {
    std::vector<int> writers;
    for (int consumer : value.consumers) {
      if (net_.nodes[consumer].backward) writers.push_back(consumer);
    }
    return writers;
  }

  void AddValues() {
    for (const Value& value : net_.values) {
      const int root = value.memory;
      const int self = static_cast<int>(t_.values.size());
      t_.values.push_back(AddState({.name = value.name,
                                    .bytes = Bytes(value),
                                    .view_of = root == self ? -1 : t_.values[root],
                                    .view_offset = value.memory_offset}));
    }
    t_.value_gradients.assign(net_.values.size(), -1);
    t_.partial_gradients.resize(net_.values.size());
    // Consumers first: a layer that passes a gradient through gives its input a view of it.
    for (int v = static_cast<int>(net_.values.size()) - 1; v >= 0; --v) AddValueGradient(v);
  }

  bool IsPart(const NetNode& node, const Alias& alias) const {
    return Bytes(net_.values[node.value_of(alias.output)]) <
           Bytes(net_.values[node.value_of(alias.input)]);
  }

  // The gradient that a node's backward gives to value v may share the memory of the gradient it
  // reads: it must for a view, which assigns nothing.  -1: it has memory of its own.
  int SharedGradient(const NetNode& node, int v, bool also_in_place) const {
    for (const Alias& alias : node.spec.aliases) {
      if (node.value_of(alias.input) != v || !(alias.must || also_in_place)) continue;
      // A part of nothing is as large as all of it, and may have no gradient.
      const int of = t_.value_gradients[node.value_of(alias.output)];
      if (of >= 0 && !IsPart(node, alias)) return Base(of);
    }
    return -1;
  }

  // The other way round where an output is a part of v: its gradient lies in v's, which is `state`.
  void PlaceParts(const NetNode& node, int v, int state) {
    for (const Alias& alias : node.spec.aliases) {
      const int part = t_.value_gradients[node.value_of(alias.output)];
      if (node.value_of(alias.input) != v || !IsPart(node, alias) || part < 0) continue;
      // What shares the part's gradient shares all of it.
      TraceState& whole_part = t_.trace.states[Base(part)];
      whole_part.view_of = state;
      whole_part.view_offset = alias.offset_bytes;
    }
  }

  int Base(int state) const {
    while (t_.trace.states[state].view_of >= 0) state = t_.trace.states[state].view_of;
    return state;
  }

  void AddValueGradient(int v) {
    const Value& value = net_.values[v];
    if (!value.needs_gradient) return;
    const std::vector<int> writers = GradientWriters(value);
    const std::string name = absl::StrCat("gradient of ", value.name);
    const bool one_source = writers.size() + (net_.IsLoss(v) ? 1 : 0) == 1;
    int view_of = -1;
    if (one_source && !writers.empty()) {
      view_of = SharedGradient(net_.nodes[writers[0]], v, /*also_in_place=*/true);
    }
    t_.value_gradients[v] = AddState({.name = name, .bytes = Bytes(value), .view_of = view_of});
    if (one_source) {
      if (!writers.empty()) PlaceParts(net_.nodes[writers[0]], v, t_.value_gradients[v]);
      return;
    }
    // Only views share here: another consumer's gradient must not be overwritten before the sum.
    for (int writer : writers) {
      t_.partial_gradients[v].push_back(
          AddState({.name = absl::StrCat(name, " from ", net_.nodes[writer].config->name()),
                    .bytes = Bytes(value),
                    .view_of = SharedGradient(net_.nodes[writer], v, /*also_in_place=*/false)}));
      PlaceParts(net_.nodes[writer], v, t_.partial_gradients[v].back());
    }
  }

  void AddNodeStates() {
    for (const NetNode& node : net_.nodes) {
      auto& forward = t_.forward_states.emplace_back();
      auto& backward = t_.backward_states.emplace_back();
      auto& gradients = t_.node_gradients.emplace_back();
      const int self = static_cast<int>(t_.forward_states.size()) - 1;
      for (size_t s = 0; s < node.spec.states.size(); ++s) {
        const bool metric = static_cast<int>(s) == node.spec.metric;
        forward.push_back(metric ? t_.metrics[self] : StateOf(node, s));
        const bool scratch = node.spec.states[s].kind == StateKind::kScratch;
        backward.push_back(scratch && node.backward ? StateOf(node, s) : forward.back());
        gradients.push_back(node.backward ? GradientOf(node, self, s) : -1);
      }
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
    }
    return -1;
  }

  int GradientOf(const NetNode& node, int self, size_t s) {
    const StateSpec& spec = node.spec.states[s];
    if (spec.kind == StateKind::kParameter) return ParameterGradientOf(node.parameters[s], self);
    if (spec.kind != StateKind::kInput && spec.kind != StateKind::kOutput) return -1;
    const int v = node.value_of(static_cast<int>(s));
    if (spec.kind == StateKind::kOutput) return t_.value_gradients[v];
    if (t_.partial_gradients[v].empty()) return t_.value_gradients[v];
    // A node that uses a value twice has one writer entry, hence one partial, for each use.
    const std::vector<int> writers = GradientWriters(net_.values[v]);
    size_t index = std::find(writers.begin(), writers.end(), self) - writers.begin();
    for (size_t k = 0; k < s; ++k) index += node.inputs[k] == v ? 1 : 0;
    return t_.partial_gradients[v][index];
  }

  // Of its users the one that backward comes to first assigns the gradient; what the others find is
  // added to it.
  int ParameterGradientOf(int p, int self) {
    if (t_.gradients[p] < 0 || users_[p].last == self) return t_.gradients[p];
    const int partial = AddState({.name = absl::StrCat("gradient of ", parameters_.all()[p].name(),
                                                       " from ", net_.nodes[self].config->name()),
                                  .bytes = parameters_.all()[p].spec.size_bytes()});
    t_.shared_gradients[p].push_back(partial);
    return partial;
  }

  void AddUpload() {
    TraceStep& step = AddStep("upload");
    Write(step, t_.step);
    for (const NetTrace::Ahead& ahead : t_.ahead) Touch(step, ahead.whole, kRead | kWrite);
    for (int v = 0; v < net_.inputs; ++v) Write(step, t_.values[v]);
  }

  void AddForward(size_t n) {
    const NetNode& node = net_.nodes[n];
    TraceStep& step = AddStep(absl::StrCat("forward ", node.config->name()));
    Read(step, t_.step);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      Touch(step, t_.forward_states[n][s], node.spec.states[s].forward);
    }
    // An output that shares its input's memory is written even where the layer does nothing.
    for (int output : node.outputs) Write(step, t_.values[output]);
  }

  void AddLossGradients() {
    TraceStep& step = AddStep("loss gradients");
    for (int v = 0; v < static_cast<int>(net_.values.size()); ++v) {
      // Without parameters above it a loss has no gradient.
      const int gradient = t_.value_gradients[v];
      if (gradient >= 0 && net_.IsLoss(v)) Write(step, gradient);
    }
  }

  void AddBackward(int n) {
    const NetNode& node = net_.nodes[n];
    if (!node.backward) return;
    for (int v : node.outputs) {
      const std::vector<int>& partials = t_.partial_gradients[v];
      if (partials.empty()) continue;
      TraceStep& sum = AddStep(absl::StrCat("sum gradients of ", net_.values[v].name));
      for (int partial : partials) Read(sum, partial);
      // A loss that other layers read adds their gradients to its own.
      if (net_.IsLoss(v)) Read(sum, t_.value_gradients[v]);
      Write(sum, t_.value_gradients[v]);
    }
    TraceStep& step = AddStep(absl::StrCat("backward ", node.config->name()));
    Read(step, t_.step);
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const StateSpec& spec = node.spec.states[s];
      if (spec.backward != kNone) Touch(step, t_.backward_states[n][s], spec.backward);
      const int gradient = t_.node_gradients[n][s];
      if (gradient < 0) continue;
      if (spec.kind == StateKind::kOutput) {
        Read(step, gradient);
      } else {
        Write(step, gradient);
      }
    }
    for (int p : node.parameters) {
      if (p < 0 || users_[p].first != n || t_.shared_gradients[p].empty()) continue;
      TraceStep& sum = AddStep(absl::StrCat("sum gradients of ", parameters_.all()[p].name()));
      for (int partial : t_.shared_gradients[p]) Read(sum, partial);
      Touch(sum, t_.gradients[p], kRead | kWrite);
    }
  }

  void AddUpdates() {
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      TraceStep& step = AddStep(absl::StrCat("update bucket ", b));
      Read(step, t_.step);
      for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
        const int p = order_.gradients[g].parameter;
        Read(step, t_.gradients[p]);
        Touch(step, t_.parameters[p], kRead | kWrite);
        for (int slot : t_.slots[p]) Touch(step, slot, kRead | kWrite);
      }
    }
  }

  void AddReport() { Read(AddStep("report"), t_.step); }

  const NetSpec& net_;
  const ParameterSet& parameters_;
  const int slots_;
  const GradientOrder& order_;
  const Feed& feed_;
  const std::vector<Users> users_;
  NetTrace t_;
};

}  // namespace

NetTrace TraceNet(const NetSpec& net, const ParameterSet& parameters, int slots,
                  const GradientOrder& order, const Feed& feed) {
  return Tracer(net, parameters, slots, order, feed).Run();
}

}  // namespace gyre
