#include "engine/training/model/fold_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/trainable_from.h"
#include "models/schema/graph.h"

namespace gyre {
namespace {

bool CanTakeNorm(const LayerConfig& layer) {
  return layer.has_conv2d() || layer.has_conv1d() || layer.has_dense();
}

bool HasBias(const LayerConfig& layer) {
  if (layer.has_conv2d()) return layer.conv2d().use_bias();
  return layer.has_conv1d() ? layer.conv1d().use_bias() : layer.dense().use_bias();
}

// The names that a layer gives to its parameters.
std::set<std::string> NamesIn(const LayerConfig& layer) {
  std::set<std::string> names;
  for (const ParameterConfig* const parameter : ParametersIn(layer)) {
    if (parameter->has_name()) names.insert(parameter->name());
  }
  return names;
}

// Whether it names one of its parameters, or another layer one by what this layer's are called.
bool SharesParameters(const LayerConfig& layer, const std::set<std::string>& names) {
  return !NamesIn(layer).empty() || std::ranges::any_of(names, [&](const std::string& name) {
    return absl::StartsWith(name, layer.name() + ".");
  });
}

// By node: the layer that a batch_norm becomes part of; null if it stays.
std::vector<const LayerConfig*> LayersAhead(const NetGraph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) names.merge(NamesIn(*node.config));
  std::vector<int> uses(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    for (const Source& source : node.inputs) {
      if (!source.is_net_input) ++uses[source.index];
    }
  }
  std::vector<const LayerConfig*> ahead;
  for (const Node& node : graph.nodes) {
    ahead.push_back(nullptr);
    if (!node.config->has_batch_norm() || node.inputs[0].is_net_input) continue;
    const LayerConfig& before = *graph.nodes[node.inputs[0].index].config;
    if (CanTakeNorm(before) && uses[node.inputs[0].index] == 1 &&
        !SharesParameters(before, names) && !SharesParameters(*node.config, names)) {
      ahead.back() = &before;
    }
  }
  return ahead;
}

// A tensor that has the norm's channels along its first axis.
absl::StatusOr<Tensor> Find(const TensorFile& weights, const std::string& name,
                            const std::string& norm, int64_t channels, DType dtype) {
  const Tensor* tensor = weights.Find(name);
  if (tensor == nullptr) {
    RETURN_IF_ERROR(weights.CheckReadable(name));
    return absl::NotFoundError(
        absl::StrFormat("it holds no tensor \"%s\", so it belongs to another net", name));
  }
  if (tensor->dtype != dtype || tensor->shape.rank() == 0 || tensor->shape[0] != channels) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its tensor \"%s\" is %s %s, and \"%s.running_mean\" %s [%d], so it belongs to another net",
        name, DTypeName(tensor->dtype), tensor->shape.ToString(), norm, DTypeName(dtype),
        channels));
  }
  return *tensor;
}

// Channel by channel: the weights' rows and the norm's bias, which becomes the layer's.
template <typename T>
void Fold(double epsilon, const T* own_bias, const T* scale, const T* mean, const T* variance,
          Tensor weight, T* bias) {
  const int64_t channels = weight.shape[0],
                row = weight.elements() / std::max<int64_t>(channels, 1);
  for (int64_t c = 0; c < channels; ++c) {
    const double by = scale[c] / std::sqrt(variance[c] + epsilon);
    const double b = own_bias == nullptr ? 0 : static_cast<double>(own_bias[c]);
    for (int64_t i = 0; i < row; ++i) {
      T& w = weight.as<T>()[c * row + i];
      w = static_cast<T>(by * w);
    }
    bias[c] = static_cast<T>(by * (b - mean[c]) + bias[c]);
  }
}

}  // namespace

absl::StatusOr<std::vector<FoldedNorm>> FoldBatchNorms(Parsed<NetConfig>& net) {
  ASSIGN_OR_RETURN(const NetGraph graph, BuildGraph(net, LayerConfig::TEST));
  const std::vector<const LayerConfig*> ahead = LayersAhead(graph);
  std::vector<FoldedNorm> folded;
  if (std::ranges::count(ahead, nullptr) == std::ssize(ahead)) return folded;
  WriteInputs(graph, *net.message);
  std::map<std::string, LayerConfig*> layers;
  for (LayerConfig& layer : *net.message->mutable_layer()) layers[layer.name()] = &layer;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    LayerConfig& layer = *layers.at(graph.nodes[n].config->name());
    for (size_t i = 0; i < graph.nodes[n].inputs.size(); ++i) {
      const Source& source = graph.nodes[n].inputs[i];
      if (source.is_net_input || ahead[source.index] == nullptr) continue;
      layer.set_input(static_cast<int>(i), ahead[source.index]->name());
    }
    if (ahead[n] == nullptr) continue;
    LayerConfig& into = *layers.at(ahead[n]->name());
    folded.push_back({.into = into.name(),
                      .norm = layer.name(),
                      .has_bias = HasBias(into),
                      .epsilon = layer.batch_norm().epsilon()});
    if (into.has_conv2d()) into.mutable_conv2d()->set_use_bias(true);
    if (into.has_conv1d()) into.mutable_conv1d()->set_use_bias(true);
    if (into.has_dense()) into.mutable_dense()->set_use_bias(true);
  }
  for (int i = net.message->layer_size() - 1; i >= 0; --i) {
    if (std::ranges::count(folded, net.message->layer(i).name(), &FoldedNorm::norm) > 0) {
      net.message->mutable_layer()->DeleteSubrange(i, 1);
    }
  }
  return folded;
}

absl::StatusOr<TensorFile> FoldTensors(const std::vector<FoldedNorm>& folded,
                                       const TensorFile& weights) {
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& named : weights.tensors()) tensors[named.name] = named.tensor;
  for (const FoldedNorm& fold : folded) {
    const Tensor* mean = weights.Find(absl::StrCat(fold.norm, ".running_mean"));
    const int64_t channels = mean == nullptr ? 0 : mean->elements();
    const DType dtype = mean == nullptr ? DType::kF32 : mean->dtype;
    const auto find = [&](const std::string& layer, const char* state) {
      return Find(weights, absl::StrCat(layer, ".", state), fold.norm, channels, dtype);
    };
    RETURN_IF_ERROR(find(fold.norm, "running_mean").status());
    ASSIGN_OR_RETURN(const Tensor variance, find(fold.norm, "running_variance"));
    ASSIGN_OR_RETURN(const Tensor scale, find(fold.norm, "scale"));
    ASSIGN_OR_RETURN(const Tensor bias, find(fold.norm, "bias"));
    ASSIGN_OR_RETURN(const Tensor weight, find(fold.into, "weight"));
    Tensor own_bias{nullptr, Shape({channels}), dtype};
    if (fold.has_bias) {
      ASSIGN_OR_RETURN(own_bias, find(fold.into, "bias"));
    }
    RETURN_IF_ERROR(VisitReal(dtype, [&]<typename T>() {
      Fold(fold.epsilon, own_bias.as<T>(), scale.as<T>(), mean->as<T>(), variance.as<T>(), weight,
           bias.as<T>());
      return absl::OkStatus();
    }));
    for (const char* state : {".running_mean", ".running_variance", ".scale", ".bias"}) {
      tensors.erase(absl::StrCat(fold.norm, state));
    }
    tensors[absl::StrCat(fold.into, ".bias")] = bias;
  }
  std::vector<NamedTensor> left;
  for (const auto& [name, tensor] : tensors) left.push_back({name, tensor});
  return weights.With(std::move(left));
}

absl::Status FoldBatchNorms(Parsed<NetConfig>& net, Weights& weights) {
  ASSIGN_OR_RETURN(const std::vector<FoldedNorm> folded, FoldBatchNorms(net));
  auto tensors = FoldTensors(folded, weights.tensors);
  if (!tensors.ok()) return Annotate(tensors.status(), weights.path);
  weights.tensors = *std::move(tensors);
  return absl::OkStatus();
}

}  // namespace gyre
