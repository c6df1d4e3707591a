#include "engine/training/net/shape_inference.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/random.h"
#include "engine/training/net/activation_fusion.h"
#include "engine/training/net/memory_sharing.h"
#include "engine/training/net/needed_gradients.h"
#include "engine/training/net/parameter_sharing.h"
#include "engine/training/net/recomputation.h"
#include "layers/factory.h"

namespace gyre {
namespace {

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
    ASSIGN_OR_RETURN(NetGraph graph, Graph());
    const std::vector<OutputActivation> activations = FuseActivations(graph);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      RETURN_IF_ERROR(AddNode(graph.nodes[n], activations[n]));
    }
    if (options_.train) RETURN_IF_ERROR(FindNeededGradients(config_, net_));
    ShareMemory(net_);
    ChooseRecomputed(net_);
    return std::move(net_);
  }

 private:
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

  absl::Status AddNode(const Node& source, const OutputActivation& activation) {
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
    if (!layer.ok()) return AtLayer(config_, *node.config, layer.status());
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
                           .output_activation = activation.kind,
                           .output_max = activation.max,
                           .primitives = options_.primitives});
    if (!spec.ok()) {
      return AtLayer(config_, *node.config, WithImplicitInput(*node.config, spec.status()));
    }
    node.spec = *std::move(spec);
    if (node.spec.applied_activation) node.activation = activation.kind;
    // No layer but a ReLU has a producer with an activation.
    const Source& first = source.inputs.front();
    node.applied_by_producer =
        !first.is_net_input && net_.nodes[first.index].activation != Activation::kNone;
    node.undone_by_producer =
        node.applied_by_producer && net_.nodes[first.index].spec.applied_backward;
    if (node.undone_by_producer) {
      for (StateSpec& state : node.spec.states) state.backward = kNone;
    }
    for (const StateSpec& state : node.spec.states) {
      if (state.shape.IsCountable()) continue;
      return AtLayer(config_, *node.config,
                     absl::InvalidArgumentError(
                         absl::StrFormat("%s %s has more than 2^56 elements; make it smaller",
                                         state.name, state.shape.ToString())));
    }
    const bool makes_parameters = options_.same_parameters_as == nullptr;
    if (absl::Status bound = BindParameters(makes_parameters, node, parameters_); !bound.ok()) {
      return AtLayer(config_, *node.config, bound);
    }

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
               options_.train && IsReal(state.dtype) && (node.trained() || some_input)});
    }
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

  absl::StatusOr<NetGraph> Graph() const {
    return BuildGraph(config_, options_.train ? LayerConfig::TRAIN : LayerConfig::TEST);
  }

  // A complaint about what a layer is fed names what it takes where its text does not: by the text,
  // which has layers in the order before their fusion.
  absl::Status WithImplicitInput(const LayerConfig& layer, const absl::Status& status) const {
    if (layer.input_size() > 0 || !absl::StartsWith(status.message(), "expects ")) return status;
    const NetGraph graph = *Graph();
    const Source& source = std::ranges::find(graph.nodes, &layer, &Node::config)->inputs[0];
    return absl::Status(
        status.code(),
        absl::StrFormat("%s; it names no input, and so takes \"%s\"", status.message(),
                        source.is_net_input ? config_.message->input(source.index).name()
                                            : graph.nodes[source.index].config->name()));
  }

  const LayerSpec* FirstSpec(std::string_view name) const {
    const auto found = first_specs_.find(name);
    return found == first_specs_.end() ? nullptr : found->second;
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
