#include "engine/training/net_spec.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/random.h"
#include "layers/factory.h"

namespace gyre {
namespace {

// The states of a layer are its inputs, then one output, then the rest.
int OutputState(const NetNode& node) { return static_cast<int>(node.inputs.size()); }

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
    std::vector<uint8_t> needs_gradient;
    for (const Source& from : source.inputs) {
      const int value = from.is_net_input ? from.index : net_.nodes[from.index].output;
      node.inputs.push_back(value);
      net_.values[value].consumers.push_back(index);
      shapes.push_back(net_.values[value].shape);
      dtypes.push_back(net_.values[value].dtype);
      needs_gradient.push_back(options_.train && net_.values[value].needs_gradient);
    }
    auto layer = CreateLayer(*node.config);
    if (!layer.ok()) return Error(*node.config, layer.status());
    node.layer = *std::move(layer);
    auto spec =
        node.layer->Infer({.inputs = shapes,
                           .dtypes = dtypes,
                           .batch_axes = {},
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

    const StateSpec& output = node.spec.states[OutputState(node)];
    GYRE_CHECK(output.kind == StateKind::kOutput);
    node.output = static_cast<int>(net_.values.size());
    const bool some_input =
        std::any_of(needs_gradient.begin(), needs_gradient.end(), [](uint8_t n) { return n != 0; });
    net_.values.push_back({.name = node.config->name(),
                           .shape = output.shape,
                           .dtype = output.dtype,
                           .producer = index,
                           .memory = node.output,
                           .needs_gradient = options_.train && (Trained(node) || some_input)});
    net_.nodes.push_back(std::move(node));
    return absl::OkStatus();
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
    const std::string& layer = node.config->name();
    node.parameters.assign(node.spec.states.size(), -1);
    for (int i = 0; i < static_cast<int>(node.spec.states.size()); ++i) {
      const StateSpec& state = node.spec.states[i];
      if (state.kind != StateKind::kParameter && state.kind != StateKind::kBuffer) continue;
      if (options_.same_parameters_as == nullptr) {
        node.parameters[i] = static_cast<int>(parameters_.all().size());
        parameters_.Add({.layer = layer, .spec = state, .state = i, .owner = node.layer});
        continue;
      }
      const absl::StatusOr<int> found = parameters_.Find(layer, state);
      if (!found.ok()) {
        return Error(*node.config, absl::InvalidArgumentError(found.status().message()));
      }
      node.parameters[i] = *found;
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
      if (node.spec.loss_output >= 0) reaches_loss[node.output] = true;
      node.backward = reaches_loss[node.output] && net_.values[node.output].needs_gradient;
      for (int input : node.inputs) {
        if (reaches_loss[node.output]) reaches_loss[input] = true;
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
  // input's bytes any more once the layer has run.
  void ShareMemory() {
    std::vector<Use> uses;  // by value; where values share memory, that of all of them at the first
    for (const Value& value : net_.values) uses.push_back(UseOf(value));
    for (int i = 0; i < static_cast<int>(net_.nodes.size()); ++i) {
      NetNode& node = net_.nodes[i];
      for (const Alias& alias : node.spec.aliases) {
        const int memory = net_.values[node.inputs[alias.input]].memory;
        if (!alias.must && (uses[memory].kept || uses[memory].last_consumer > i)) continue;
        net_.values[node.output].memory = memory;
        uses[memory].kept |= uses[node.output].kept;
        uses[memory].last_consumer =
            std::max(uses[memory].last_consumer, uses[node.output].last_consumer);
      }
      GYRE_CHECK(!node.applied_by_producer ||
                 net_.values[node.output].memory == net_.values[node.inputs[0]].memory);
    }
  }

  struct Use {
    bool kept = false;       // a net input, which stays as it was uploaded, or read in backward
    int last_consumer = -1;  // node
  };

  Use UseOf(const Value& value) const {
    if (value.producer < 0) return {.kept = true};
    const NetNode& producer = net_.nodes[value.producer];
    Use use;
    use.kept = producer.backward && producer.spec.states[OutputState(producer)].backward != kNone;
    for (int consumer : value.consumers) {
      use.last_consumer = consumer;  // they ascend
      const NetNode& reader = net_.nodes[consumer];
      for (size_t k = 0; k < reader.inputs.size(); ++k) {
        use.kept |= reader.inputs[k] == producer.output && reader.backward &&
                    reader.spec.states[k].backward != kNone;
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

absl::StatusOr<NetSpec> InferNet(const Parsed<NetConfig>& config, const InferNetOptions& options,
                                 ParameterSet& parameters) {
  return Inference(config, options, parameters).Run();
}

}  // namespace gyre
