#include <algorithm>

#include "absl/strings/str_format.h"
#include "engine/data/sets/series.h"
#include "engine/training/feed/data_check.h"
#include "engine/training/feed/feed_of.h"

namespace gyre {
namespace {

// The largest element of an array of integers; -1: it has none above, or is of reals.
int64_t LargestOf(const Dataset& dataset, size_t array) {
  const DType dtype = dataset.arrays()[array].dtype;
  int64_t largest = -1;
  SampleMemory memory;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    // What cannot be read is told when it is met.
    const absl::StatusOr<Tensor> sample = dataset.Read(i, array, memory, {});
    if (!sample.ok() || (dtype != DType::kI32 && dtype != DType::kU8)) return -1;
    const auto look = [&]<typename T>(const T* first) {
      for (int64_t k = 0; k < sample->elements(); ++k) {
        largest = std::max(largest, static_cast<int64_t>(first[k]));
      }
    };
    dtype == DType::kU8 ? look(sample->as<uint8_t>()) : look(sample->as<int32_t>());
  }
  return largest;
}

// Follows the axis along which samples are filled up from the net's inputs on.
class PaddedAxes {
 public:
  PaddedAxes(const NetSpec& spec, const Dataset& dataset)
      : spec_(spec), axes_(spec.values.size(), kNone) {
    for (int v = 0; v < spec.inputs; ++v) {
      const size_t array = ArrayOf(dataset, spec.values[v].name);
      // A number a sample has no axis.
      if (array < dataset.arrays().size() && dataset.arrays()[array].shape.rank() > 0) axes_[v] = 1;
    }
  }

  // Goes on to the node's outputs.  Whether it reads the padding like the rest of a sample.
  bool Mixes(const NetNode& node) {
    const auto padded = std::ranges::find_if(node.inputs, [&](int v) { return axes_[v] != kNone; });
    if (padded == node.inputs.end() || KnowsLengths(*node.config)) return false;
    const Shape& in = spec_.values[*padded].shape;
    const int axis = axes_[*padded];
    const LayerConfig& layer = *node.config;
    const bool along_last = layer.has_dense() || layer.has_softmax() || layer.has_layer_norm();
    if ((along_last && axis == in.rank() - 1) || layer.has_conv1d() || layer.has_pool1d()) {
      return true;
    }
    for (const int output : node.outputs) {
      const Shape& out = spec_.values[output].shape;
      if (out.rank() <= axis || out[axis] != in[axis]) return true;
      axes_[output] = axis;
    }
    return false;
  }

 private:
  static constexpr int kNone = -1;

  // Beyond a sample's length what these make is 0.
  static bool KnowsLengths(const LayerConfig& layer) {
    return layer.has_lstm() || layer.has_gru() || layer.has_rnn();
  }

  const NetSpec& spec_;
  std::vector<int> axes_;  // by value
};

}  // namespace

absl::Status CheckTokens(const Parsed<NetConfig>& net, const NetSpec& spec, const Dataset& dataset,
                         const char* field) {
  const Fit fit = dataset.fit();
  const bool is_table = fit.contains(kTableFile);
  if (!is_table && !fit.contains(kVocabularyFile)) return absl::OkStatus();
  for (const NetNode& node : spec.nodes) {
    if (!node.config->has_embedding()) continue;
    const int viewed = spec.InputViewedBy(node.inputs[0]);
    if (viewed < 0) continue;
    const NetValue& input = spec.values[viewed];
    const size_t array = ArrayOf(dataset, input.name);
    if (array == dataset.arrays().size()) continue;
    const int64_t rows = node.config->embedding().vocabulary();
    const int64_t largest = LargestOf(dataset, array);
    if (largest < rows) continue;
    return AtLayer(
        net, *node.config,
        absl::InvalidArgumentError(absl::StrFormat(
            "vocabulary: %d rows, but \"%s\" of data.%s (%s) has %s from 0 to %d; "
            "set vocabulary to %d or more%s",
            rows, input.name, field, dataset.arrays()[array].file, is_table ? "words" : "tokens",
            largest, largest + 1, is_table ? "" : ", or keep fewer tokens")));
  }
  return absl::OkStatus();
}

std::vector<std::string> PaddingWarnings(const Parsed<NetConfig>& net, const NetSpec& spec,
                                         const Dataset& dataset, const char* field) {
  std::vector<std::string> warnings;
  if (!IsPadded(dataset)) return warnings;
  const auto [least, most] = std::ranges::minmax(dataset.lengths());
  PaddedAxes axes(spec, dataset);
  for (const NetNode& node : spec.nodes) {
    if (!axes.Mixes(node)) continue;
    warnings.push_back(absl::StrFormat(
        "%s: layer \"%s\": reads the zeros that samples are filled up with as tokens: those of "
        "data.%s have %d to %d of their own; an lstm, gru or rnn that is given \"length\" leaves "
        "them out",
        net.source->Where(*node.config), node.config->name(), field, least, most));
  }
  return warnings;
}

}  // namespace gyre
