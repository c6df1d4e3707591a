#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"
#include "engine/runtime/random.h"
#include "engine/training/net/infer/inference_passes.h"
#include "engine/training/net/infer/net_kernels.h"
#include "layers/factory.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

// Below each trainable_from.
constexpr int64_t kNeverTrains = -1;

// The net's own layer that changes the precision of a value and of its gradient.  It takes one
// input of a real type.  Each element is rounded once.
class ConversionLayer : public Layer {
 public:
  explicit ConversionLayer(DType to) : to_(to) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    LayerSpec spec;
    spec.states = {
        MakeState("input", StateKind::kInput, input.inputs[0], input.dtypes[0], kRead, kNone),
        MakeState("output", StateKind::kOutput, input.inputs[0], to_, kWrite, kNone)};
    spec.states[1].batch_axis = input.batch_axes[0];
    spec.cheap = true;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return Convert(context.stream, context.states[0], context.states[1]);
  }

  absl::Status Backward(const LayerContext& context) const override {
    return Convert(context.stream, context.gradients[1], context.gradients[0]);
  }

  // A model in ONNX is of F32 alone.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    onnx.Pass();
    return absl::OkStatus();
  }

 private:
  const DType to_;
};

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
    if (options_.shape.turn >= 0) KeepTurn(options_.shape, graph);
    std::vector<OutputActivation> activations = FuseActivations(graph);
    for (const Node& node : graph.nodes) {
      // A reader of another precision reads a conversion, not this value.
      const Source& first = node.inputs.front();
      if (node.config->has_relu() && !first.is_net_input &&
          PrecisionOf(*node.config) != PrecisionOf(*graph.nodes[first.index].config)) {
        activations[first.index] = {};
      }
    }
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      RETURN_IF_ERROR(AddNode(graph.nodes[n], activations[n]));
    }
    if (options_.train) RETURN_IF_ERROR(FindNeededGradients(config_, net_));
    RETURN_IF_ERROR(CheckOneCount());
    FindCarried();
    ShareMemory(net_);
    if (options_.recompute) ChooseRecomputed(net_);
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
      net_.values.push_back({.name = input.name(),
                             .shape = Shape(dims),
                             .dtype = input.type() == InputConfig::LABEL
                                          ? DType::kI32
                                          : AccumulateDType(options_.shape.compute),
                             .memory = static_cast<int>(net_.values.size())});
    }
    net_.inputs = static_cast<int>(net_.values.size());
    return absl::OkStatus();
  }

  // One weight serves all gradients of a batch, so all losses must count alike.
  absl::Status CheckOneCount() const {
    const int counting = net_.CountingLoss();
    if (counting < 0 || options_.shape.accumulate == 1) return absl::OkStatus();
    const NetNode& first = net_.nodes[counting];
    const auto counted_from = [](const NetNode& node) {
      std::vector<int> values;
      for (const int input : node.spec.counted_from) values.push_back(node.inputs[input]);
      return values;
    };
    for (const NetNode& node : net_.nodes) {
      const bool same = node.spec.count >= 0 && node.spec.counted == first.spec.counted &&
                        counted_from(node) == counted_from(first);
      if (!node.IsMinimised() || same) continue;
      return AtLayer(config_, *node.config,
                     absl::InvalidArgumentError(absl::StrFormat(
                         "with accumulate %d all losses must be means over the same targets, but "
                         "that of layer \"%s\" leaves out some that this one counts, or counts "
                         "others; set accumulate to 1, or give both one target, ignore_label and "
                         "weight",
                         options_.shape.accumulate, first.config->name())));
    }
    return absl::OkStatus();
  }

  void FindCarried() {
    for (int n = 0; n < static_cast<int>(net_.nodes.size()); ++n) {
      const std::vector<StateSpec>& states = net_.nodes[n].spec.states;
      for (int to = 0; to < static_cast<int>(states.size()); ++to) {
        if (states[to].kind != StateKind::kCarried) continue;
        const auto from = std::ranges::find(states, to, &StateSpec::carried_to);
        GYRE_CHECK(from != states.end() && from->size_bytes() == states[to].size_bytes());
        net_.carried.push_back({n, static_cast<int>(from - states.begin()), to});
      }
    }
  }

  DType PrecisionOf(const LayerConfig& layer) const {
    return layer.has_precision() ? DTypeOf(layer.precision()) : options_.shape.compute;
  }

  // Infers the layer for inputs as they will be converted.
  absl::Status Infer(const OutputActivation& activation, DType compute, NetNode& node) {
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    std::vector<int> batch_axes;
    std::vector<uint8_t> needs_gradient;
    for (const int v : node.inputs) {
      const NetValue& value = net_.values[v];
      shapes.push_back(value.shape);
      dtypes.push_back(IsReal(value.dtype) ? compute : value.dtype);
      batch_axes.push_back(value.batch_axis);
      needs_gradient.push_back(options_.train && value.needs_gradient);
    }
    ASSIGN_OR_RETURN(node.layer, CreateLayer(*node.config));
    ASSIGN_OR_RETURN(
        node.spec,
        node.layer->Infer({.inputs = shapes,
                           .dtypes = dtypes,
                           .batch_axes = batch_axes,
                           .compute = compute,
                           .train = options_.train,
                           .needs_gradient = needs_gradient,
                           .same_parameters_as = FirstSpec(node.config->name()),
                           .global_batch = options_.shape.global,
                           .first_step = FirstStepOf(*node.config),
                           .random_key = RandomKey(options_.shape.seed, node.config->name()),
                           .output_activation = activation.kind,
                           .output_max = activation.max,
                           .primitives = options_.primitives}));
    return absl::OkStatus();
  }

  // In a turn the other players' layers are frozen, as those that train later.
  int64_t FirstStepOf(const LayerConfig& layer) const {
    const int turn = options_.shape.turn;
    const bool trains = turn < 0 || options_.shape.PlayerOf(layer.name()) == turn;
    return trains ? options_.shape.first_step() : kNeverTrains;
  }

  // The value in `dtype`, which is itself or the output of a conversion.
  int Converted(int value, DType dtype) {
    const NetValue from = net_.values[value];
    if (!IsReal(from.dtype) || from.dtype == dtype) return value;
    const auto [found, is_new] = converted_.emplace(std::pair(value, dtype), 0);
    if (!is_new) return found->second;
    auto config = std::make_shared<LayerConfig>();
    config->set_name(absl::StrCat(from.name, " as ", std::string(DTypeName(dtype))));
    NetNode node;
    node.config = config.get();
    node.layer = std::make_unique<ConversionLayer>(dtype);
    net_.conversions.push_back(std::move(config));
    node.inputs = {value};
    const bool needs_gradient = options_.train && from.needs_gradient;
    InferInput input;
    input.inputs = {&from.shape, 1};
    input.dtypes = {&from.dtype, 1};
    input.batch_axes = {&from.batch_axis, 1};
    node.spec = *node.layer->Infer(input);
    node.parameters.assign(node.spec.states.size(), -1);
    net_.values[value].consumers.push_back(static_cast<int>(net_.nodes.size()));
    AddOutputs(node, needs_gradient);
    net_.nodes.push_back(std::move(node));
    return found->second = net_.nodes.back().outputs[0];
  }

  void AddOutputs(NetNode& node, bool some_input) {
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
           .producer = static_cast<int>(net_.nodes.size()),
           .output = k,
           .memory = node.outputs.back(),
           .needs_gradient =
               options_.train && IsReal(state.dtype) && (node.trained() || some_input)});
    }
  }

  absl::Status AddNode(const Node& source, const OutputActivation& activation) {
    NetNode node;
    node.config = source.config;
    node.where = config_.source->Where(*node.config);
    for (size_t i = 0; i < source.inputs.size(); ++i) {
      ASSIGN_OR_RETURN(node.inputs.emplace_back(), ValueOf(source, i));
    }
    DType compute = PrecisionOf(*node.config);
    absl::Status inferred = Infer(activation, compute, node);
    const bool reads_shares = std::ranges::any_of(node.spec.states, &StateSpec::not_negative);
    const bool measures = node.spec.loss_output >= 0 || node.spec.records >= 0 || reads_shares;
    if (inferred.ok() && measures && !node.config->has_precision() &&
        compute != AccumulateDType(compute)) {
      compute = AccumulateDType(compute);
      inferred = Infer(activation, compute, node);
    }
    if (!inferred.ok()) {
      return AtLayer(config_, *node.config, WithImplicitInput(*node.config, inferred));
    }
    for (int& input : node.inputs) input = Converted(input, compute);
    const int index = static_cast<int>(net_.nodes.size());
    for (const int input : node.inputs) net_.values[input].consumers.push_back(index);
    if (node.spec.applied_activation) node.activation = activation.kind;
    // No layer but a ReLU has a producer with an activation.
    const Source& first = source.inputs.front();
    node.applied_by_producer =
        !first.is_net_input && Producer(first).activation != Activation::kNone;
    node.undone_by_producer = node.applied_by_producer && Producer(first).spec.applied_backward;
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
    RETURN_IF_ERROR(
        AtLayer(config_, *node.config, BindParameters(makes_parameters, node, parameters_)));
    AddOutputs(node, std::ranges::any_of(node.inputs, [&](int input) {
                 return options_.train && net_.values[input].needs_gradient;
               }));
    node_of_.push_back(index);
    net_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  const NetNode& Producer(const Source& source) const { return net_.nodes[node_of_[source.index]]; }

  absl::StatusOr<int> ValueOf(const Node& reader, size_t input) const {
    const Source& from = reader.inputs[input];
    if (from.is_net_input) return from.index;
    const NetNode& producer = Producer(from);
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

  // Names the implicit input in an error about inputs, by the text, which has layers in the order
  // before fusion.
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
  std::vector<int> node_of_;                        // by layer of the graph
  std::map<std::pair<int, DType>, int> converted_;  // by value and type
};

}  // namespace

absl::StatusOr<NetSpec> InferNet(const Parsed<NetConfig>& config, const InferNetOptions& options,
                                 ParameterSet& parameters) {
  return Inference(config, options, parameters).Run();
}

}  // namespace gyre
