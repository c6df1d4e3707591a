#include "engine/training/net_spec.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/random.h"
#include "layers/factory.h"

namespace gyre {
namespace {

// For each node those that read it, once for each use.
using Readers = std::vector<std::vector<int>>;

Readers ReadersIn(const NetGraph& graph) {
  Readers readers(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Source& source : graph.nodes[i].inputs) {
      if (!source.is_net_input) readers[source.index].push_back(static_cast<int>(i));
    }
  }
  return readers;
}

bool IsRelu(const Node& node) {
  return node.config->has_relu() && node.config->relu().negative_slope() == 0;
}

// A ReLU and the maximum of a window commute, exactly: the largest x has the largest max(x, 0), and
// where that is 0, so is the gradient.  After the pooling it has fewer elements to look at, and the
// unpooled ones need not be kept for backward.
void MoveReluPastMaxPool(NetGraph& graph, const Readers& readers) {
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (!IsRelu(graph.nodes[n])) continue;
    if (readers[n].size() != 1) continue;
    Node& pool = graph.nodes[readers[n][0]];
    const bool max = pool.config->has_pool2d() && pool.config->pool2d().kind() == Pool2dConfig::MAX;
    if (max) std::swap(graph.nodes[n].config, pool.config);
  }
}

bool Trained(const NetNode& node) {
  return std::any_of(node.spec.states.begin(), node.spec.states.end(),
                     [](const StateSpec& state) { return state.trained(); });
}

class Inference {
 public:
  Inference(const Parsed<NetConfig>& config, const InferNetOptions& options,
            ParameterSet& parameters)
      : config_(config), options_(options), parameters_(parameters) {
    if (options.same_parameters_as == nullptr) return;
    for (const NetNode& node : options.same_parameters_as->nodes) {
      first_specs_.emplace(node.config->name(), &node.spec);
    }
  }

  absl::StatusOr<NetSpec> Run() {
    net_.train = options_.train;
    net_.shape = options_.shape;
    RETURN_IF_ERROR(AddInputs());
    ASSIGN_OR_RETURN(NetGraph graph,
                     BuildGraph(config_, options_.train ? LayerConfig::TRAIN : LayerConfig::TEST));
    const Readers readers = ReadersIn(graph);
    MoveReluPastMaxPool(graph, readers);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      RETURN_IF_ERROR(AddNode(graph.nodes[n], ActivationAfter(graph, readers[n])));
    }
    if (options_.train) RETURN_IF_ERROR(FindBackward());
    ShareMemory();
    return std::move(net_);
  }

 private:
  absl::Status Error(const LayerConfig& layer, const absl::Status& status) const {
    return absl::Status(status.code(),
                        absl::StrFormat("%s: layer \"%s\": %s", config_.source->Where(layer),
                                        layer.name(), status.message()));
  }

  // What a node may apply to its output: that of the only layer which reads it.
  static Activation ActivationAfter(const NetGraph& graph, const std::vector<int>& readers) {
    return readers.size() == 1 && IsRelu(graph.nodes[readers[0]]) ? Activation::kRelu
                                                                  : Activation::kNone;
  }

  absl::Status AddInputs() {
    for (const InputConfig& input : config_.message->input()) {
      std::vector<int64_t> dims = {options_.shape.local};
      dims.insert(dims.end(), input.dims().begin(), input.dims().end());
      if (dims.size() > Shape::kMaxRank || !Shape(dims).IsCountable()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: input \"%s\": a batch [%s] has more than %d axes or 2^56 elements; lower batch or "
            "dims",
            config_.source->Where(input), input.name(), absl::StrJoin(dims, ", "),
            Shape::kMaxRank));
      }
      net_.values.push_back(
          {.name = input.name(),
           .shape = Shape(dims),
           .dtype = input.type() == InputConfig::LABEL ? DType::kI32 : options_.shape.compute,
           .memory = static_cast<int>(net_.values.size())});
    }
    net_.inputs = static_cast<int>(net_.values.size());
    return absl::OkStatus();
  }

  absl::Status AddNode(const Node& source, Activation activation) {
    const int index = static_cast<int>(net_.nodes.size());
    NetNode node;
    node.config = source.config;
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    std::vector<int> batch_axes;
    std::vector<uint8_t> needs_gradient;
    for (size_t i = 0; i < source.inputs.size(); ++i) {
      ASSIGN_OR_RETURN(const int value, ValueOf(source, i));
      node.inputs.push_back(value);
      net_.values[value].consumers.push_back(index);
      shapes.push_back(net_.values[value].shape);
      dtypes.push_back(net_.values[value].dtype);
      batch_axes.push_back(net_.values[value].batch_axis);
      needs_gradient.push_back(options_.train && net_.values[value].needs_gradient);
    }
    auto layer = CreateLayer(*node.config);
    if (!layer.ok()) return Error(*node.config, layer.status());
    node.layer = *std::move(layer);
    auto spec =
        node.layer->Infer({.inputs = shapes,
                           .dtypes = dtypes,
                           .batch_axes = batch_axes,
                           .compute = options_.shape.compute,
                           .train = options_.train,
                           .needs_gradient = needs_gradient,
                           .same_parameters_as = FirstSpec(node.config->name()),
                           .global_batch = options_.shape.global,
                           .random_key = RandomKey(options_.shape.seed, node.config->name()),
                           .output_activation = activation,
                           .primitives = options_.primitives});
    if (!spec.ok()) return Error(*node.config, WithImplicitInput(node, spec.status()));
    node.spec = *std::move(spec);
    if (node.spec.applied_activation) node.activation = activation;
    // No layer but a ReLU has a producer with an activation.
    const Source& first = source.inputs.front();
    node.applied_by_producer =
        !first.is_net_input && net_.nodes[first.index].activation != Activation::kNone;
    for (const StateSpec& state : node.spec.states) {
      if (state.shape.IsCountable()) continue;
      return Error(*node.config, absl::InvalidArgumentError(absl::StrFormat(
                                     "%s %s has more than 2^56 elements; make it smaller",
                                     state.name, state.shape.ToString())));
    }
    RETURN_IF_ERROR(AddParameters(node));

    const bool some_input =
        std::any_of(needs_gradient.begin(), needs_gradient.end(), [](uint8_t n) { return n != 0; });
    for (size_t s = node.inputs.size(); s < node.spec.states.size(); ++s) {
      const StateSpec& state = node.spec.states[s];
      if (state.kind != StateKind::kOutput) break;
      const int k = static_cast<int>(node.outputs.size());
      node.outputs.push_back(static_cast<int>(net_.values.size()));
      net_.values.push_back(
          {.name = k == 0 ? node.config->name() : absl::StrCat(node.config->name(), ":", k),
           .shape = state.shape,
           .dtype = state.dtype,
           .batch_axis = state.batch_axis,
           .producer = index,
           .output = k,
           .memory = node.outputs.back(),
           .needs_gradient =
               options_.train && IsReal(state.dtype) && (Trained(node) || some_input)});
    }
    GYRE_CHECK(!node.outputs.empty());
    net_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::StatusOr<int> ValueOf(const Node& reader, size_t input) const {
    const Source& from = reader.inputs[input];
    if (from.is_net_input) return from.index;
    const NetNode& producer = net_.nodes[from.index];
    if (const auto k = static_cast<size_t>(from.output); k < producer.outputs.size()) {
      return producer.outputs[k];
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: layer \"%s\": input \"%s:%d\": \"%s\" has %d output%s, numbered from 0",
        config_.source->Where(*reader.config, "input", static_cast<int>(input)),
        reader.config->name(), producer.config->name(), from.output, producer.config->name(),
        producer.outputs.size(), producer.outputs.size() == 1 ? "" : "s"));
  }

  // A complaint about what a layer is fed names what it takes where its text does not.
  absl::Status WithImplicitInput(const NetNode& node, const absl::Status& status) const {
    if (node.config->input_size() > 0 || !absl::StartsWith(status.message(), "expects ")) {
      return status;
    }
    return absl::Status(status.code(),
                        absl::StrFormat("%s; it names no input, and so takes \"%s\"",
                                        status.message(), net_.values[node.inputs[0]].name));
  }

  const LayerSpec* FirstSpec(std::string_view name) const {
    const auto found = first_specs_.find(name);
    return found == first_specs_.end() ? nullptr : found->second;
  }

  absl::Status AddParameters(NetNode& node) {
    node.parameters.assign(node.spec.states.size(), -1);
    for (int i = 0; i < static_cast<int>(node.spec.states.size()); ++i) {
      const StateSpec& state = node.spec.states[i];
      if (state.kind != StateKind::kParameter && state.kind != StateKind::kBuffer) continue;
      const Parameter mine{
          .layer = node.config->name(), .spec = state, .state = i, .owner = node.layer};
      const bool makes_them = options_.same_parameters_as == nullptr;
      int index = parameters_.Find(mine.name());
      if (index >= 0) {
        const Parameter& first = parameters_.all()[index];
        if (absl::Status same =
                makes_them ? CheckShared(node, mine, first) : CheckSameSize(state, first.spec);
            !same.ok()) {
          return Error(*node.config, same);
        }
      } else if (makes_them) {
        index = static_cast<int>(parameters_.all().size());
        parameters_.Add(mine);
      } else {
        return Error(*node.config,
                     absl::InvalidArgumentError(absl::StrFormat(
                         "has the parameter \"%s\", which the training net lacks; remove `phase: "
                         "TEST` or the layer",
                         state.name)));
      }
      node.parameters[i] = index;
    }
    return absl::OkStatus();
  }

  // Two of one name.
  static absl::Status CheckShared(const NetNode& node, const Parameter& mine,
                                  const Parameter& first) {
    const auto refuse = [&](absl::string_view what, const std::string& here,
                            const std::string& there) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is \"%s\", as is %s of layer \"%s\"; parameters of one name are one, but its %s is "
          "%s and the other's %s",
          mine.spec.name, mine.spec.shared_name, first.spec.name, first.layer, what, here, there));
    };
    const StateSpec &a = mine.spec, &b = first.spec;
    if (first.owner == node.layer) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s and %s are both \"%s\"; a layer's own parameters cannot be one",
                          b.name, a.name, a.shared_name));
    }
    const std::string shapes[] = {a.parts[0].shape.ToString(), b.parts[0].shape.ToString()};
    if (shapes[0] != shapes[1]) return refuse("shape", shapes[0], shapes[1]);
    if (a.layout != b.layout || a.size_bytes() != b.size_bytes()) {
      return refuse("storage", a.layout.empty() ? "plain" : a.layout,
                    b.layout.empty() ? "plain" : b.layout);
    }
    const std::pair<const char*, double StateSpec::*> multipliers[] = {
        {"learning_rate_multiplier", &StateSpec::learning_rate_multiplier},
        {"decay_multiplier", &StateSpec::decay_multiplier}};
    for (const auto& [what, field] : multipliers) {
      if (a.*field != b.*field) return refuse(what, absl::StrCat(a.*field), absl::StrCat(b.*field));
    }
    return absl::OkStatus();
  }

  // A state and that of the net which made it.
  static absl::Status CheckSameSize(const StateSpec& state, const StateSpec& first) {
    if (first.dtype != state.dtype || first.size_bytes() != state.size_bytes()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is %s %s in the training net, but would be %s %s here; nets of other "
                          "batch sizes share it, so it cannot depend on the batch",
                          state.name, first.shape.ToString(), DTypeName(first.dtype),
                          state.shape.ToString(), DTypeName(state.dtype)));
    }
    if (state.layout != first.layout || state.parts[0].shape != first.parts[0].shape) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is \"%s\" of the training net, but has the shape %s and storage \"%s\" there, %s and "
          "\"%s\" here; give it the same in both phases",
          state.name, state.shared_name, first.parts[0].shape.ToString(), first.layout,
          state.parts[0].shape.ToString(), state.layout));
    }
    return absl::OkStatus();
  }

  // Keeps gradients only where a loss depends on the value, and finds the nodes that pass them on.
  absl::Status FindBackward() {
    const bool any_loss =
        std::any_of(net_.nodes.begin(), net_.nodes.end(),
                    [](const NetNode& node) { return node.spec.loss_output >= 0; });
    if (!any_loss) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: the net has no loss to train with; add a layer such as softmax_cross_entropy",
          config_.source->file()));
    }
    bool any_trained = false;
    std::vector<bool> reaches_loss(net_.values.size(), false);
    for (int i = static_cast<int>(net_.nodes.size()) - 1; i >= 0; --i) {
      NetNode& node = net_.nodes[i];
      if (node.spec.loss_output >= 0) reaches_loss[node.value_of(node.spec.loss_output)] = true;
      const auto reaches = [&](int output) -> bool { return reaches_loss[output]; };
      const bool any = std::ranges::any_of(node.outputs, reaches);
      node.backward = std::ranges::any_of(node.outputs, [&](int output) {
        return reaches(output) && net_.values[output].needs_gradient;
      });
      for (int input : node.inputs) {
        if (any) reaches_loss[input] = true;
      }
      any_trained = any_trained || Trained(node);
      if (Trained(node) && !node.backward) {
        return Error(*node.config,
                     absl::InvalidArgumentError("has parameters that no loss depends on; feed it "
                                                "to a loss or remove it"));
      }
    }
    if (!any_trained) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: the net has no parameter to train: add a layer such as dense, or give one a "
          "learning_rate_multiplier above 0",
          config_.source->file()));
    }
    for (size_t v = 0; v < net_.values.size(); ++v) {
      Value& value = net_.values[v];
      value.needs_gradient = value.needs_gradient && reaches_loss[v];
    }
    return absl::OkStatus();
  }

  // Lets outputs share their input's memory: views always, in-place layers where nobody reads the
  // input's bytes, or those of another view of them, any more once the layer has run.
  void ShareMemory() {
    std::vector<Use> uses;  // by value; where values share memory, that of all of them at the first
    for (const Value& value : net_.values) uses.push_back(UseOf(value));
    for (int i = 0; i < static_cast<int>(net_.nodes.size()); ++i) {
      NetNode& node = net_.nodes[i];
      for (const Alias& alias : node.spec.aliases) {
        const Value& input = net_.values[node.value_of(alias.input)];
        const int memory = input.memory, output = node.value_of(alias.output);
        if (!alias.must && (uses[memory].kept || uses[memory].last_consumer > i ||
                            ReadsAnotherPart(node, input))) {
          continue;
        }
        net_.values[output].memory = memory;
        net_.values[output].memory_offset = input.memory_offset + alias.offset_bytes;
        uses[memory].kept |= uses[output].kept;
        uses[memory].last_consumer =
            std::max(uses[memory].last_consumer, uses[output].last_consumer);
      }
      GYRE_CHECK(!node.applied_by_producer ||
                 net_.values[node.outputs[0]].memory == net_.values[node.inputs[0]].memory);
    }
  }

  // Whether the node reads the memory of its input from elsewhere as well, where its output would
  // overwrite what it has yet to read.
  bool ReadsAnotherPart(const NetNode& node, const Value& input) const {
    return std::ranges::any_of(node.inputs, [&](int v) {
      return net_.values[v].memory == input.memory &&
             net_.values[v].memory_offset != input.memory_offset;
    });
  }

  struct Use {
    bool kept = false;       // a net input, which stays as it was uploaded, or read in backward
    int last_consumer = -1;  // node
  };

  Use UseOf(const Value& value) const {
    if (value.producer < 0) return {.kept = true};
    const NetNode& producer = net_.nodes[value.producer];
    Use use;
    const StateSpec& state = producer.spec.states[producer.inputs.size() + value.output];
    use.kept = producer.backward && state.backward != kNone;
    const int self = producer.outputs[value.output];
    for (int consumer : value.consumers) {
      use.last_consumer = consumer;  // they ascend
      const NetNode& reader = net_.nodes[consumer];
      for (size_t k = 0; k < reader.inputs.size(); ++k) {
        use.kept |=
            reader.inputs[k] == self && reader.backward && reader.spec.states[k].backward != kNone;
      }
    }
    return use;
  }

  const Parsed<NetConfig>& config_;
  const InferNetOptions& options_;
  ParameterSet& parameters_;
  std::unordered_map<std::string_view, const LayerSpec*> first_specs_;  // of the net before
  NetSpec net_;
};

}  // namespace

bool NetSpec::IsLoss(int value) const {
  const int producer = values[value].producer;
  if (producer < 0 || nodes[producer].spec.loss_output < 0) return false;
  return nodes[producer].value_of(nodes[producer].spec.loss_output) == value;
}

absl::StatusOr<NetSpec> InferNet(const Parsed<NetConfig>& config, const InferNetOptions& options,
                                 ParameterSet& parameters) {
  return Inference(config, options, parameters).Run();
}

}  // namespace gyre
