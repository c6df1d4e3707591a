#include "engine/training/onnx/onnx_model.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"
#include "engine/runtime/version.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/fold_batch_norm.h"
#include "engine/training/net/infer/net_spec.h"
#include "engine/training/onnx/graph_writer.h"
#include "engine/training/predict/predict.h"

namespace gyre {
namespace {

constexpr int64_t kIrVersion = 8;
constexpr int64_t kSamples = 2;  // for which the net is inferred

// A net inferred and written for one number of samples.
struct WrittenNet {
  NetSpec spec;
  onnx::GraphProto graph;
  std::vector<GraphWriter::CarriedValue> carried;
  std::vector<std::string> outputs;  // values
  int opset = 13;
};

// Numbers of each channel, or one, as an operand of a value in a form.
std::string PerChannel(const char* name, const std::vector<double>& numbers, bool channels_first,
                       GraphWriter& writer) {
  const std::vector<float> floats(numbers.begin(), numbers.end());
  if (floats.size() == 1) return writer.Scalar(floats[0]);
  const auto channels = static_cast<int64_t>(floats.size());
  const std::vector<int64_t> dims =
      channels_first ? std::vector<int64_t>{1, channels, 1, 1} : std::vector<int64_t>{channels};
  return writer.Weights(name, dims, floats);
}

bool Differs(const std::vector<double>& numbers, double from) {
  return std::ranges::any_of(numbers, [&](double number) { return number != from; });
}

// Pictures with channels first, normalized.  OpenCV 4.6 takes no operand along their last axis, and
// of one along their channels it takes the first sample's alone.
std::string NormalizedChannels(const std::string& pictures, const Normalization& by,
                               const NetValue& value, GraphWriter& writer) {
  const auto channels = static_cast<size_t>(value.shape[3]);
  const auto weights = [&](const char* name, const auto& of_channel) {
    std::vector<float> floats;
    for (size_t c = 0; c < channels; ++c) floats.push_back(static_cast<float>(of_channel(c)));
    return writer.Weights(name, {value.shape[3]}, floats);
  };
  const auto std = [&](size_t c) { return by.std[c % by.std.size()]; };
  return writer.Node("BatchNormalization",
                     {pictures, weights("scale", [](size_t) { return 1; }),
                      weights("bias", [](size_t) { return 0; }),
                      weights("mean", [&](size_t c) { return by.mean[c % by.mean.size()]; }),
                      weights("variance", [&](size_t c) { return std(c) * std(c); })},
                     {{"epsilon", 0.f}});
}

void WriteInputs(const OnnxSource& source, const NetSpec& spec, GraphWriter& writer) {
  for (int i = 0; i < spec.inputs; ++i) {
    const NetValue& value = spec.values[i];
    const OnnxForm form = FormOf(value, source.channels_first);
    writer.SetInput(i, value.name, form);
    const auto found = source.normalizations.find(value.name);
    if (found == source.normalizations.end()) continue;
    const auto& [mean, std] = found->second;
    writer.Begin(value.name);
    if (value.shape.rank() == 4 && std::max(mean.size(), std.size()) > 1) {
      const OnnxForm turned{OnnxForm::kChannelsFirst};
      writer.SetInput(
          i, NormalizedChannels(writer.ValueOf(i, turned), found->second, value, writer), turned);
      continue;
    }
    std::string name = value.name;
    const bool turned = form.kind == OnnxForm::kChannelsFirst;
    if (Differs(mean, 0)) {
      name = writer.Node("Sub", {name, PerChannel("mean", mean, turned, writer)});
    }
    if (Differs(std, 1)) {
      name = writer.Node("Div", {name, PerChannel("std", std, turned, writer)});
    }
    writer.SetInput(i, name, form);
  }
}

// The value that a prediction is.
int ValueOf(const NetSpec& spec, const Prediction& prediction) {
  return spec.nodes[RecorderOf(spec, prediction)].inputs[0];
}

// A prediction in its unit.
std::string WriteOutput(const OnnxSource& source, const NetValue& of, int value,
                        const Normalization& unit, GraphWriter& writer) {
  const OnnxForm form = FormOf(of, source.channels_first);
  const bool turned = form.kind == OnnxForm::kChannelsFirst;
  std::string name = writer.ValueOf(value, form);
  if (Differs(unit.std, 1)) {
    name = writer.Node("Mul", {name, PerChannel("unit_std", unit.std, turned, writer)});
  }
  if (Differs(unit.mean, 0)) {
    name = writer.Node("Add", {name, PerChannel("unit_mean", unit.mean, turned, writer)});
  }
  return name;
}

absl::StatusOr<WrittenNet> Write(const OnnxSource& source, const Primitives& primitives,
                                 const TensorFile* weights, bool time_is_free) {
  WrittenNet written;
  ParameterSet parameters;
  ASSIGN_OR_RETURN(written.spec, InferNet(source.net,
                                          {.train = false,
                                           .shape = {.local = kSamples, .global = kSamples},
                                           .primitives = &primitives},
                                          parameters));
  for (const Parameter& parameter : parameters.all()) {
    if (weights == nullptr) continue;
    const std::string name = CanonicalName(parameter, "");
    RETURN_IF_ERROR(weights->CheckReadable(name));
    RETURN_IF_ERROR(CheckStored(parameter, "", weights->Find(name)));
  }
  GraphWriter writer(written.spec, parameters, weights, time_is_free, written.graph);
  WriteInputs(source, written.spec, writer);
  for (const NetNode& node : written.spec.nodes) {
    if (node.spec.records >= 0) continue;
    RETURN_IF_ERROR(AtLayer(source.net, *node.config, writer.Add(node)));
  }
  for (const Prediction& prediction : source.predictions) {
    const int value = ValueOf(written.spec, prediction);
    writer.Begin(prediction.name);
    written.outputs.push_back(
        WriteOutput(source, written.spec.values[value], value, prediction.unit, writer));
  }
  written.carried = writer.carried();
  written.opset = writer.opset();
  return written;
}

// Declares a value.  `other` is its shape where time is one step longer, and has other extents at
// its axes of time.
void Declare(const std::string& name, const Shape& shape, const Shape& other, int batch_axis,
             DType dtype, OnnxForm form, onnx::ValueInfoProto& to) {
  to.set_name(name);
  onnx::TypeProto::Tensor& type = *to.mutable_type()->mutable_tensor_type();
  type.set_elem_type(dtype == DType::kI32 ? onnx::TensorProto::INT32 : onnx::TensorProto::FLOAT);
  std::vector<int> axes;
  for (int axis = 0; axis < shape.rank(); ++axis) axes.push_back(axis);
  if (form.kind == OnnxForm::kChannelsFirst)
    std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  type.mutable_shape();
  for (const int axis : axes) {
    onnx::TensorShapeProto::Dimension& dim = *type.mutable_shape()->add_dim();
    if (axis == batch_axis) {
      dim.set_dim_param("N");
    } else if (shape[axis] != other[axis]) {
      dim.set_dim_param("T");
    } else {
      dim.set_dim_value(shape[axis]);
    }
  }
}

// The indices of inputs whose first axis may be time: steps of numbers or indices, of as many steps
// as the first of them.
std::vector<int> Sequences(const NetConfig& net) {
  std::vector<int> found;
  for (int i = 0; i < net.input_size(); ++i) {
    const InputConfig& input = net.input(i);
    const bool steps = input.dims_size() == 2 || input.dims_size() == 1;
    if (!steps || (!found.empty() && input.dims(0) != net.input(found[0]).dims(0))) continue;
    found.push_back(i);
  }
  return found;
}

// The net written without weights for one more step, if no constant then differs.
std::optional<NetSpec> ForMoreTime(OnnxSource& source, const Primitives& primitives) {
  NetConfig& net = *source.net.message;
  const std::vector<int> sequences = Sequences(net);
  if (sequences.empty()) return std::nullopt;
  const int64_t steps = net.input(sequences[0]).dims(0);
  const auto set_steps = [&](int64_t to) {
    for (const int i : sequences) net.mutable_input(i)->set_dims(0, to);
  };
  const auto before = Write(source, primitives, nullptr, /*time_is_free=*/true);
  // Fewer steps: a table of positions has no more rows.
  set_steps(steps > 1 ? steps - 1 : 2);
  auto after = Write(source, primitives, nullptr, /*time_is_free=*/true);
  set_steps(steps);
  if (!before.ok() || !after.ok()) return std::nullopt;
  if (before->graph.SerializeAsString() != after->graph.SerializeAsString()) return std::nullopt;
  return std::move(after->spec);
}

// Gives a value the name that the model's reader sees.
void Rename(const std::string& from, const std::string& to, onnx::GraphProto& graph) {
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (std::string& name : *node.mutable_input()) {
      if (name == from) name = to;
    }
    for (std::string& name : *node.mutable_output()) {
      if (name == from) name = to;
    }
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) Rename(from, to, *attribute.mutable_g());
    }
  }
}

// The value becomes an output of this name.
void AddOutput(const std::string& value, const std::string& name, onnx::GraphProto& graph) {
  const auto has = [&](const auto& list) {
    return std::ranges::any_of(list, [&](const auto& other) { return other.name() == value; });
  };
  if (!has(graph.input()) && !has(graph.output())) return Rename(value, name, graph);
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type("Identity");
  node.set_name(name + "/Identity");
  node.add_input(value);
  node.add_output(name);
}

}  // namespace

OnnxForm FormOf(const NetValue& value, bool channels_first) {
  const bool turned = channels_first && value.shape.rank() == 4 && value.dtype != DType::kI32;
  return {turned ? OnnxForm::kChannelsFirst : OnnxForm::kRows};
}

std::string NameInModel(const Prediction& prediction) {
  switch (prediction.kind) {
    case Prediction::OutputKind::kClassShares:
      return prediction.name + ".softmax";
    case Prediction::OutputKind::kShares:
      return prediction.name + ".sigmoid";
    case Prediction::OutputKind::kValues:
      break;
  }
  return prediction.name;
}

absl::StatusOr<OnnxSource> MakeOnnxSource(Parsed<NetConfig> net, DataConfig data, Weights weights,
                                          const OnnxOptions& options) {
  OnnxSource source{.net = std::move(net),
                    .classes = ClassNamesOf(weights.fit),
                    .channels_first = options.channels_first};
  ASSIGN_OR_RETURN(source.predictions,
                   PreparePrediction(options.outputs, /*kept=*/"", weights.fit, data, source.net));
  for (const NormalizationConfig& config : data.normalization()) {
    const std::string& input = InputOf(config, data);
    ASSIGN_OR_RETURN(source.normalizations[input],
                     NormalizationOf(data, weights.fit, *source.net.message, input));
  }
  if (!options.keep_batch_norm) RETURN_IF_ERROR(FoldBatchNorms(source.net, weights));
  source.tensors = std::move(weights.tensors);
  return source;
}

absl::StatusOr<onnx::ModelProto> MakeOnnx(OnnxSource& source, const Primitives& primitives) {
  const std::optional<NetSpec> longer = ForMoreTime(source, primitives);
  ASSIGN_OR_RETURN(WrittenNet written,
                   Write(source, primitives, &source.tensors, longer.has_value()));
  const NetSpec& spec = written.spec;
  const NetSpec& other = longer ? *longer : spec;
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("gyre");
  model.set_producer_version(kVersion);
  model.add_opset_import()->set_version(written.opset);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph = std::move(written.graph);
  graph.set_name(source.net.message->name());
  for (int i = 0; i < spec.inputs; ++i) {
    const NetValue& value = spec.values[i];
    if (value.consumers.empty()) continue;
    Declare(value.name, value.shape, other.values[i].shape, value.batch_axis, value.dtype,
            FormOf(value, source.channels_first), *graph.add_input());
  }
  for (const GraphWriter::CarriedValue& carried : written.carried) {
    Declare(carried.name, carried.shape, carried.shape, /*batch_axis=*/0, DType::kF32, {},
            *graph.add_input());
  }
  std::set<std::string> names;
  for (size_t p = 0; p < source.predictions.size(); ++p) {
    const Prediction& prediction = source.predictions[p];
    const std::string name = NameInModel(prediction);
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("output \"", name, "\": expected each output once, got it twice"));
    }
    const int v = ValueOf(spec, prediction);
    const NetValue& value = spec.values[v];
    AddOutput(written.outputs[p], name, graph);
    Declare(name, value.shape, other.values[v].shape, value.batch_axis, value.dtype,
            FormOf(value, source.channels_first), *graph.add_output());
  }
  for (const GraphWriter::CarriedValue& carried : written.carried) {
    if (carried.next.empty()) continue;
    const std::string name = carried.name + ".next";
    AddOutput(carried.next, name, graph);
    Declare(name, carried.shape, carried.shape, /*batch_axis=*/0, DType::kF32, {},
            *graph.add_output());
  }
  if (!source.classes.empty()) {
    onnx::StringStringEntryProto& entry = *model.add_metadata_props();
    entry.set_key("classes");
    entry.set_value(nlohmann::json(source.classes)
                        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return model;
}

void FixExtents(const NetConfig& net, int64_t samples, onnx::ModelProto& model) {
  constexpr int kFirstState = 5;  // an operand of GRU
  onnx::GraphProto& graph = *model.mutable_graph();
  const std::vector<int> sequences = Sequences(net);
  const int64_t steps = sequences.empty() ? 0 : net.input(sequences[0]).dims(0);
  for (auto* values : {graph.mutable_input(), graph.mutable_output()}) {
    for (onnx::ValueInfoProto& value : *values) {
      for (auto& dim :
           *value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
        if (dim.has_dim_param()) dim.set_dim_value(dim.dim_param() == "N" ? samples : steps);
      }
    }
  }
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    if (node.op_type() != "GRU" || node.input_size() > kFirstState) continue;
    const auto weight =
        std::ranges::find(graph.initializer(), node.input(2), &onnx::TensorProto::name);
    const std::vector<int64_t> dims = {weight->dims(0), samples, weight->dims(2)};
    while (node.input_size() < kFirstState) node.add_input("");
    node.add_input(node.name() + "/zeros");
    onnx::TensorProto& zeros = *graph.add_initializer();
    zeros.set_name(node.input(kFirstState));
    SetConstant(dims, std::vector<float>(static_cast<size_t>(dims[0] * dims[1] * dims[2])), zeros);
  }
}

std::string DescribeOnnx(const onnx::ModelProto& model) {
  const auto list = [](const auto& values) {
    return absl::StrJoin(values, ", ", [](std::string* out, const onnx::ValueInfoProto& value) {
      absl::StrAppend(out, value.name(), " [",
                      absl::StrJoin(value.type().tensor_type().shape().dim(), ", ",
                                    [](std::string* to, const auto& dim) {
                                      absl::StrAppend(to, dim.has_dim_param()
                                                              ? dim.dim_param()
                                                              : absl::StrCat(dim.dim_value()));
                                    }),
                      "]");
    });
  };
  return absl::StrCat("the graph ", list(model.graph().input()), " -> ",
                      list(model.graph().output()));
}

absl::Status WriteOnnx(const std::string& path, const onnx::ModelProto& model) {
  const size_t bytes = model.ByteSizeLong();
  if (bytes > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": an ONNX file holds less than 2 GiB, and this net needs ", bytes, " bytes"));
  }
  return WriteFileAtomically(path, model.SerializeAsString());
}

}  // namespace gyre
