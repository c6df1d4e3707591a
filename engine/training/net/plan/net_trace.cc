#include "engine/training/net/plan/net_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

class IterationStates {
 public:
  IterationStates(const NetSpec& net, NetTrace& trace) : net_(net), t_(trace) {}

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

  void AddRecomputed() {
    t_.recomputed.assign(net_.values.size(), -1);
    t_.recomputed_before.resize(net_.nodes.size());
    std::vector<int> reader(net_.values.size(), -1);  // by memory: the first in backward
    for (int v = 0; v < static_cast<int>(net_.values.size()); ++v) {
      int& last = reader[net_.values[v].memory];
      for (const int consumer : net_.values[v].consumers) {
        if (ReadsInBackward(net_.nodes[consumer], v)) last = std::max(last, consumer);
      }
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
        const auto carried = std::ranges::find_if(net_.carried, [&](const CarriedState& c) {
          return c.node == self && c.to == static_cast<int>(s);
        });
        forward.push_back(metric    ? t_.metrics[self]
                          : records ? t_.records[self]
                          : carried != net_.carried.end()
                              ? t_.carried[carried - net_.carried.begin()]
                              : StateOf(node, s));
        backward.push_back(node.backward ? LaterStateOf(node, s, forward[s]) : forward[s]);
        again.push_back(node.recomputed ? LaterStateOf(node, s, forward[s]) : forward[s]);
      }
    }
  }

 private:
  int AddState(TraceState state) { return t_.trace.Add(std::move(state)); }

  bool MayNarrow(DType dtype) const {
    return dtype == DType::kF32 && net_.train && net_.shape.page_activations != DType::kF32;
  }

  // A state smaller than the layer's input is a statistic of it.  Carried rows are the next
  // batch's.  Opaque bytes may be no numbers.
  bool IsSavedActivation(const NetNode& node, const StateSpec& spec) const {
    const bool own = spec.kind == StateKind::kSaved && spec.carried_to < 0 && spec.bytes == 0;
    return own && spec.size_bytes() >= net_.values[node.inputs[0]].bytes();
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

  const NetSpec& net_;
  NetTrace& t_;
};

}  // namespace

const TouchedTable* TableOf(const TraceInput& input, size_t bucket) {
  const GradientOrder& order = input.order;
  if (!order.buckets[bucket].trains()) return nullptr;
  const int parameter = order.gradients[order.buckets[bucket].first].parameter;
  const auto found = std::ranges::find(input.tables, parameter, &TouchedTable::parameter);
  return found == input.tables.end() ? nullptr : &*found;
}

NetTrace TraceNet(const TraceInput& input, const ParameterSet& parameters) {
  NetTrace trace;
  AddLastingStates(input, parameters, trace);
  IterationStates states(input.spec, trace);
  states.AddValues();
  AddGradients(input, parameters, trace);
  states.AddRecomputed();
  states.AddNodeStates();
  AddProgram(input, trace);
  return trace;
}

}  // namespace gyre
