#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/training/net/plan/net_trace.h"

namespace gyre {
namespace {

// A sum is over the nodes that read a value, those that use a parameter, or the batches of a step.
class Gradients {
 public:
  Gradients(const TraceInput& in, const ParameterSet& parameters, NetTrace& trace)
      : net_(in.spec),
        parameters_(parameters),
        order_(in.order),
        users_(UsersOfParameters(in.spec, parameters.all().size())),
        buckets_(trace.buckets),
        trace_(trace.trace),
        g_(trace.gradients) {}

  void Run(const TraceInput& in) {
    g_.before.resize(net_.nodes.size());
    g_.after.resize(net_.nodes.size());
    AddBuckets(in);
    g_.values.assign(net_.values.size(), -1);
    partials_.resize(net_.values.size());
    // Consumers first: a layer that passes a gradient through gives its input a view of it.
    for (int v = static_cast<int>(net_.values.size()) - 1; v >= 0; --v) AddOfValue(v);
    for (int n = 0; n < static_cast<int>(net_.nodes.size()); ++n) AddOfNode(n);
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      const PlannedBucket& bucket = order_.buckets[b];
      if (!in.sends(b) || !bucket.trains()) continue;
      buckets_[b].summed =
          trace_.Add({.name = absl::StrCat("summed gradients of bucket ", b),
                      .bytes = static_cast<size_t>(bucket.elements) * SizeOf(bucket.dtype)});
    }
  }

 private:
  // With several batches a step, their mean stays from one to the next.
  bool accumulates() const { return net_.shape.accumulate > 1; }
  bool KeepsMean(size_t b) const {
    return accumulates() && AccumulateDType(order_.buckets[b].dtype) == order_.buckets[b].dtype;
  }

  // A sum over ranks needs a bucket at one address, unless it is sent.  A sent bucket, or one
  // rank's, is free once it is sent or applied.
  void AddBuckets(const TraceInput& in) {
    g_.parameters.assign(parameters_.all().size(), -1);
    g_.means.assign(parameters_.all().size(), -1);
    for (size_t b = 0; b < order_.buckets.size(); ++b) {
      const bool stays = net_.shape.ranks > 1 && !in.sends(b);
      for (int g = order_.buckets[b].first; g < order_.buckets[b].last; ++g) {
        const BucketedGradient& gradient = order_.gradients[g];
        const Parameter& parameter = parameters_.all()[gradient.parameter];
        TraceState state{.name = absl::StrCat("gradient of ", parameter.name()),
                         .bytes = parameter.spec.size_bytes(),
                         .arena = stays ? Arena::kCommunication : Arena::kDevice,
                         .persistent = KeepsMean(b),
                         .contiguous_group = static_cast<int>(b)};
        if (buckets_[b].sum_of_batches >= 0) {
          state.contiguous_group = -1;
          state.view_of = buckets_[b].sum_of_batches;
          state.view_offset = static_cast<size_t>(gradient.at) * SizeOf(order_.buckets[b].dtype);
        }
        g_.parameters[gradient.parameter] = trace_.Add(std::move(state));
        if (!accumulates()) continue;
        g_.means[gradient.parameter] =
            KeepsMean(b) ? g_.parameters[gradient.parameter]
                         : trace_.Add({.name = absl::StrCat("mean gradient of ", parameter.name()),
                                       .bytes = static_cast<size_t>(gradient.count) * sizeof(float),
                                       .persistent = true});
      }
    }
  }

  void AddOfValue(int v) {
    const NetValue& value = net_.values[v];
    if (!value.needs_gradient) return;
    const std::string name = absl::StrCat("gradient of ", value.name);
    const std::vector<int> writers = WritersOf(value);
    const bool one_source = writers.size() + (net_.IsLoss(v) ? 1 : 0) == 1;
    TraceState state{.name = name, .bytes = value.bytes()};
    if (one_source && !writers.empty()) {
      Share(net_.nodes[writers[0]], v, /*also_in_place=*/true, state);
    }
    const int total = g_.values[v] = trace_.Add(std::move(state));
    if (one_source) {
      if (!writers.empty()) PlaceParts(net_.nodes[writers[0]], v, total);
      return;
    }
    // A passed gradient shares memory too, but nobody works in place.  Another consumer's gradient
    // must not be overwritten before the sum.
    for (int writer : writers) {
      TraceState partial{.name = absl::StrCat(name, " from ", net_.nodes[writer].config->name()),
                         .bytes = value.bytes()};
      Share(net_.nodes[writer], v, /*also_in_place=*/false, partial);
      partials_[v].push_back(trace_.Add(std::move(partial)));
      PlaceParts(net_.nodes[writer], v, partials_[v].back());
    }
    if (partials_[v].empty()) return;
    std::vector<int> terms = partials_[v];
    const int first = terms.front();
    if (net_.IsLoss(v)) {
      // A loss that other layers read adds their gradients to its own.
      terms.insert(terms.begin(), total);
    } else if (trace_.states[first].view_of < 0 && !read_on_.contains(first)) {
      trace_.states[total].view_of = first;
    }
    g_.before[value.producer].push_back({absl::StrCat("sum gradients of ", value.name), total,
                                         /*mean=*/-1, std::move(terms), value.dtype});
  }

  // The nodes whose backward assigns the gradient of `value`, once for each use.
  std::vector<int> WritersOf(const NetValue& value) const {
    std::vector<int> writers;
    for (int consumer : value.consumers) {
      if (net_.nodes[consumer].backward) writers.push_back(consumer);
    }
    return writers;
  }

  bool IsPart(const NetNode& node, const Alias& alias) const {
    return net_.values[node.value_of(alias.output)].bytes() <
           net_.values[node.value_of(alias.input)].bytes();
  }

  // `state`, the gradient that a node's backward gives to value v, may share memory with the
  // gradient that backward reads.  A view's must, as a view assigns nothing.
  void Share(const NetNode& node, int v, bool also_in_place, TraceState& state) {
    if (node.spec.passes_gradient) {
      const int of = g_.values[node.outputs[0]];
      const bool overwrites = node.activation != Activation::kNone;
      if (overwrites && read_on_.contains(Base(of)) && !passed_.contains(of)) return;
      passed_.insert(of);
      read_on_.insert(Base(of));
      state.view_of = of;
      return;
    }
    for (const Alias& alias : node.spec.aliases) {
      if (node.value_of(alias.input) != v || !(alias.must || also_in_place)) continue;
      // An empty part is as large as an empty whole, and may have no gradient.
      const int of = g_.values[node.value_of(alias.output)];
      if (of < 0 || IsPart(node, alias)) continue;
      const bool overwrites = !alias.must && !alias.input_is_slice && !node.undone_by_producer;
      if (overwrites && read_on_.contains(Base(of))) continue;
      state.view_of = of;
      state.view_offset = alias.input_is_slice ? alias.offset_bytes : 0;
      return;
    }
  }

  // The reverse, for an output that is a part of v.  Its gradient moves into v's, `state`, unless
  // it is in something larger already.
  void PlaceParts(const NetNode& node, int v, int state) {
    for (const Alias& alias : node.spec.aliases) {
      const int part = g_.values[node.value_of(alias.output)];
      if (node.value_of(alias.input) != v || !IsPart(node, alias) || part < 0) continue;
      TraceState& whole_part = trace_.states[Base(part)];
      if (whole_part.bytes > trace_.states[part].bytes) continue;
      if (read_on_.contains(Base(part))) read_on_.insert(Base(state));
      whole_part.view_of = state;
      whole_part.view_offset = alias.offset_bytes;
    }
  }

  int Base(int state) const {
    while (trace_.states[state].view_of >= 0) state = trace_.states[state].view_of;
    return state;
  }

  void AddOfNode(int n) {
    const NetNode& node = net_.nodes[n];
    std::vector<int>& states = g_.nodes.emplace_back(node.spec.states.size(), -1);
    for (size_t s = 0; node.backward && s < states.size(); ++s) {
      switch (node.spec.states[s].kind) {
        case StateKind::kParameter:
          states[s] = OfParameter(node.parameters[s], n, LastSlice(node.spec, s));
          break;
        case StateKind::kInput:
          states[s] = OfInput(n, s);
          break;
        case StateKind::kOutput:
          states[s] = g_.values[node.value_of(static_cast<int>(s))];
          break;
        default:
          break;
      }
    }
  }

  int OfInput(int n, size_t s) const {
    const NetNode& node = net_.nodes[n];
    const int v = node.inputs[s];
    if (partials_[v].empty()) return g_.values[v];
    // A node that uses a value twice has one writer entry, hence one partial, for each use.
    const std::vector<int> writers = WritersOf(net_.values[v]);
    size_t index = std::ranges::find(writers, n) - writers.begin();
    for (size_t k = 0; k < s; ++k) index += node.inputs[k] == v ? 1 : 0;
    return partials_[v][index];
  }

  // The user that backward reaches first assigns a parameter's gradient, and the others' are added.
  // To a mean over batches, all are added.
  int OfParameter(int p, int n, int slice) {
    const int total = g_.parameters[p];
    if (total < 0 || (users_[p].last == n && !accumulates())) return total;
    const Parameter& parameter = parameters_.all()[p];
    const int partial = trace_.Add({.name = absl::StrCat("gradient of ", parameter.name(), " from ",
                                                         net_.nodes[n].config->name()),
                                    .bytes = parameter.spec.size_bytes()});
    // Users come in the net's order, so the first makes the sum, which follows its backward.
    std::vector<GradientSum>& sums = g_.after[users_[p].first];
    auto sum = std::ranges::find(sums, total, &GradientSum::total);
    if (sum == sums.end()) {
      sum = sums.insert(sum, {absl::StrCat("sum gradients of ", parameter.name()), total,
                              g_.means[p], accumulates() ? std::vector<int>{} : std::vector{total},
                              parameter.spec.dtype, slice});
    }
    sum->terms.push_back(partial);
    return partial;
  }

  const NetSpec& net_;
  const ParameterSet& parameters_;
  const GradientOrder& order_;
  const std::vector<ParameterUsers> users_;
  std::vector<NetTrace::TracedBucket>& buckets_;
  AccessTrace& trace_;
  std::vector<std::vector<int>> partials_;  // by value, if it has several sources
  // Outputs' gradients that inputs share, and the states that contain them.  If several nodes read
  // such a state, none works on it in place.
  std::unordered_set<int> passed_, read_on_;
  GradientStates& g_;
};

}  // namespace

void AddGradients(const TraceInput& input, const ParameterSet& parameters, NetTrace& trace) {
  Gradients(input, parameters, trace).Run(input);
}

}  // namespace gyre
