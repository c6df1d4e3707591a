#include "engine/training/predict/prediction_net.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/feed/normalization_fit.h"
#include "models/schema/graph.h"

namespace gyre {
namespace {

std::string NameOf(const NetGraph& graph, const NetConfig& net, const Source& source) {
  if (source.is_net_input) return net.input(source.index).name();
  const std::string& name = graph.nodes[source.index].config->name();
  return source.output == 0 ? name : absl::StrCat(name, ":", source.output);
}

Prediction::OutputKind KindOf(const LayerConfig& loss) {
  if (loss.has_softmax_cross_entropy()) return Prediction::OutputKind::kClassShares;
  if (loss.has_sigmoid_cross_entropy() || loss.has_binary_cross_entropy()) {
    return Prediction::OutputKind::kShares;
  }
  return Prediction::OutputKind::kValues;
}

// What the losses read, each once.
std::vector<Prediction> ScoresOf(const NetGraph& graph, const NetConfig& net) {
  std::vector<Prediction> wanted;
  for (const Node& node : graph.nodes) {
    if (!IsLoss(*node.config) || node.inputs.front().is_net_input) continue;
    const std::string name = NameOf(graph, net, node.inputs.front());
    if (std::ranges::find(wanted, name, &Prediction::name) != wanted.end()) continue;
    const bool aims = node.config->has_mean_squared_error() && node.inputs[1].is_net_input;
    wanted.push_back({.name = name,
                      .target = aims ? net.input(node.inputs[1].index).name() : "",
                      .kind = KindOf(*node.config)});
  }
  return wanted;
}

absl::Status CheckOutput(const NetGraph& graph, const std::string& name) {
  const std::string layer = name.substr(0, name.find(':'));
  if (layer.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output \"", name, "\": expected layers with a comma between two, got an empty name"));
  }
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    const LayerConfig& config = *node.config;
    const bool of_samples =
        !IsLoss(config) && !config.has_accuracy() && !config.has_roc_auc() && !config.has_alarm();
    if (of_samples) names.push_back(config.name());
    if (config.name() != layer) continue;
    if (of_samples) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "output \"", name, "\": is a loss or a metric, of no single sample; name what it reads"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("output \"", name, "\": ", Unknown("layer", layer, names)));
}

// The layers that some names depend on.
std::set<std::string> NeededBy(const NetGraph& graph, const std::vector<Prediction>& wanted) {
  std::set<std::string> needed;
  for (const Prediction& output : wanted) {
    needed.insert(output.name.substr(0, output.name.find(':')));
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!needed.contains(node->config->name())) continue;
    for (const Source& source : node->inputs) {
      if (!source.is_net_input) needed.insert(graph.nodes[source.index].config->name());
    }
  }
  return needed;
}

// The layer whose shares `record` records.
std::string SharesOf(const std::string& record) { return record + "-shares"; }

// Appends the layers that record prediction number `number`.
void Append(size_t number, Prediction& wanted, NetConfig& net) {
  std::string from = wanted.name;
  wanted.record = absl::StrCat("predict-", number);
  if (wanted.kind != Prediction::OutputKind::kValues) {
    LayerConfig& shares = *net.add_layer();
    shares.set_name(SharesOf(wanted.record));
    shares.add_input(from);
    if (wanted.kind == Prediction::OutputKind::kClassShares) {
      shares.mutable_softmax();
    } else {
      shares.mutable_sigmoid();
    }
    from = shares.name();
  }
  LayerConfig& record = *net.add_layer();
  record.set_name(wanted.record);
  record.add_input(from);
  record.mutable_record();
}

// What stays keeps its address, which is the key of its position.
template <typename Repeated, typename Gone>
void Remove(Repeated& fields, const Gone& gone) {
  for (int i = fields.size() - 1; i >= 0; --i) {
    if (gone(fields[i])) fields.DeleteSubrange(i, 1);
  }
}

bool Lacks(const NetConfig& net, const std::string& input) {
  return std::ranges::find(net.input(), input, &InputConfig::name) == net.input().end();
}

// Removes what feeds inputs that the cut net lacks.  Returns whether anything is left.
bool ForgetInputs(const NetConfig& net, DatasetConfig& set) {
  if (set.has_images()) {
    ImagesConfig& images = *set.mutable_images();
    if (Lacks(net, images.label())) images.clear_label();
    return !images.has_input() || !Lacks(net, images.input());
  }
  if (!set.has_arrays()) return true;
  auto& arrays = *set.mutable_arrays()->mutable_array();
  Remove(arrays, [&](const ArrayConfig& array) { return Lacks(net, array.input()); });
  return !arrays.empty();
}

// Likewise of data.train and data.test, and of what is beside them.
void ForgetSources(const NetConfig& net, DataConfig& data) {
  std::vector<DatasetConfig*> sets = {data.mutable_train()};
  if (data.has_test()) sets.push_back(data.mutable_test());
  for (DatasetConfig* set : sets) ForgetInputs(net, *set);
  for (int i = data.train().beside_size() - 1; i >= 0; --i) {
    bool left = true;
    for (DatasetConfig* set : sets) left = ForgetInputs(net, *set->mutable_beside(i)) && left;
    for (DatasetConfig* set : sets) {
      if (!left) set->mutable_beside()->DeleteSubrange(i, 1);
    }
  }
}

// Removes what is of training alone, or of inputs that the cut net lacks.
void Forget(const NetConfig& net, DataConfig& data) {
  ForgetSources(net, data);
  data.clear_augmentation();
  data.clear_class_weight();
  data.clear_max_bad_samples();
  if (data.order() != DataConfig::CONTIGUOUS) data.clear_order();
  Remove(*data.mutable_normalization(),
         [&](const NormalizationConfig& config) { return Lacks(net, InputOf(config, data)); });
}

}  // namespace

absl::StatusOr<std::vector<Prediction>> CutToPredict(std::span<const std::string> outputs,
                                                     const std::string& kept,
                                                     Parsed<NetConfig>& net) {
  ASSIGN_OR_RETURN(const NetGraph graph, BuildGraph(net, LayerConfig::TEST));
  NetConfig& config = *net.message;
  std::vector<Prediction> predictions;
  for (const std::string& name : outputs) {
    RETURN_IF_ERROR(Annotate(CheckOutput(graph, name), net.source->file()));
    predictions.push_back({.name = name});
  }
  if (outputs.empty()) predictions = ScoresOf(graph, config);
  if (predictions.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        net.source->file(), ": the net has no loss, so its output is unknown; name a layer"));
  }
  WriteInputs(graph, config);
  const std::set<std::string> needed = NeededBy(graph, predictions);
  std::set<std::string> read = {kept};
  for (const Node& node : graph.nodes) {
    if (!needed.contains(node.config->name())) continue;
    for (const Source& source : node.inputs) {
      if (source.is_net_input) read.insert(config.input(source.index).name());
    }
  }
  Remove(*config.mutable_layer(),
         [&](const LayerConfig& layer) { return !needed.contains(layer.name()); });
  Remove(*config.mutable_input(),
         [&](const InputConfig& input) { return !read.contains(input.name()); });
  for (size_t p = 0; p < predictions.size(); ++p) Append(p, predictions[p], config);
  return predictions;
}

absl::StatusOr<std::vector<Prediction>> PreparePrediction(std::span<const std::string> outputs,
                                                          const std::string& kept, const Fit& fit,
                                                          DataConfig& data,
                                                          Parsed<NetConfig>& net) {
  const NetConfig whole = *net.message;
  ASSIGN_OR_RETURN(std::vector<Prediction> predictions, CutToPredict(outputs, kept, net));
  for (Prediction& prediction : predictions) {
    if (prediction.target.empty()) continue;
    ASSIGN_OR_RETURN(prediction.unit, NormalizationOf(data, fit, whole, prediction.target));
  }
  Forget(*net.message, data);
  return predictions;
}

void AddScores(std::vector<Prediction>& predictions, NetConfig& net) {
  const size_t outputs = predictions.size();
  for (size_t p = 0; p < outputs; ++p) {
    if (predictions[p].kind == Prediction::OutputKind::kValues) continue;
    const auto shares =
        std::ranges::find(net.layer(), SharesOf(predictions[p].record), &LayerConfig::name);
    Prediction& scores = predictions.emplace_back(Prediction{.name = shares->input(0)});
    Append(predictions.size() - 1, scores, net);
  }
}

absl::StatusOr<std::optional<Prediction>> AddClassShares(const std::string& label_input,
                                                         Parsed<NetConfig>& net) {
  ASSIGN_OR_RETURN(const NetGraph graph, BuildGraph(net, LayerConfig::TEST));
  const NetConfig& config = *net.message;
  for (const Node& node : graph.nodes) {
    if (!node.config->has_softmax_cross_entropy() || node.inputs.size() < 2) continue;
    const Source& label = node.inputs[1];
    if (!label.is_net_input || config.input(label.index).name() != label_input) continue;
    const InputConfig& input = config.input(label.index);
    if (input.dims_size() > (input.type() == InputConfig::LABEL ? 0 : 1)) continue;
    Prediction shares{.name = NameOf(graph, config, node.inputs[0]),
                      .kind = Prediction::OutputKind::kClassShares};
    WriteInputs(graph, *net.message);
    Append(/*number=*/0, shares, *net.message);
    return shares;
  }
  return std::nullopt;
}

}  // namespace gyre
