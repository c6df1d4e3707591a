#include "engine/training/feed/data_check.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/files/atomic_file.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {
namespace {

// The label that the layer says is ignored.
std::optional<int32_t> IgnoredBy(const LayerConfig& layer) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& of_layer = *layer.GetReflection();
  const FieldDescriptor* const type =
      of_layer.GetOneofFieldDescriptor(layer, layer.GetDescriptor()->FindOneofByName("type"));
  if (type == nullptr) return std::nullopt;
  const google::protobuf::Message& config = of_layer.GetMessage(layer, type);
  const FieldDescriptor* const field = config.GetDescriptor()->FindFieldByName("ignore_label");
  if (field == nullptr || !config.GetReflection()->HasField(config, field)) return std::nullopt;
  return config.GetReflection()->GetInt32(config, field);
}

// What a layer takes of an input, which reaches it as it is.
struct LabelRange {
  std::string where, layer, state;
  int64_t largest;
  std::optional<int32_t> ignored;

  bool Takes(int32_t value) const { return (value >= 0 && value <= largest) || value == ignored; }
};

std::vector<LabelRange> RangesOf(const NetSpec& net, int input) {
  std::vector<LabelRange> ranges;
  for (const NetNode& node : net.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const StateSpec& state = node.spec.states[i];
      if (net.InputViewedBy(node.inputs[i]) != input || state.largest < 0) continue;
      ranges.push_back(
          {node.where, node.config->name(), state.name, state.largest, IgnoredBy(*node.config)});
    }
  }
  return ranges;
}

// One input of the net, sample by sample.
class CheckedInput {
 public:
  CheckedInput(const Dataset& dataset, const NetPlan& net, int input, const std::string& what)
      : dataset_(dataset),
        what_(what),
        fed_(net.feed.inputs[static_cast<size_t>(input)]),
        index_(ArrayOf(dataset, fed_.name)),
        array_(dataset.arrays()[index_]),
        ranges_(RangesOf(net.spec, input)),
        dtype_(fed_.label ? DType::kI32 : AccumulateDType(net.spec.shape.compute)),
        decoder_(array_.dtype, dtype_, fed_.normalization),
        memory_(static_cast<size_t>(array_.shape.elements()) * SizeOf(dtype_)) {}

  // What the elements mean.
  std::string Describe() const {
    std::string text =
        absl::StrCat(" ", std::string(DTypeName(array_.dtype)), array_.shape.ToString());
    if (fed_.label) return text;
    for (size_t c = 0; c < fed_.normalization.mean.size(); ++c) {
      absl::StrAppendFormat(&text, " %.17g/%.17g", fed_.normalization.mean[c],
                            fed_.normalization.std[c]);
    }
    return text;
  }

  absl::Status Look(int64_t sample, Sha256Digest& digest) {
    ASSIGN_OR_RETURN(const Tensor stored, dataset_.Read(sample, index_));
    digest.Add({static_cast<const char*>(stored.data), stored.bytes()});
    // Each value of a byte is finite (FeedOf).
    if (!fed_.label && array_.dtype == DType::kU8) return absl::OkStatus();
    if (fed_.label && ranges_.empty()) return absl::OkStatus();
    const Tensor decoded{memory_.data(), array_.shape, dtype_};
    const absl::Status status = decoder_.Decode(stored, {}, decoded);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(what_, ": ", array_.file, ": sample ", sample,
                                                     " (the first is 0) ", status.message()));
    }
    if (!fed_.label) return absl::OkStatus();
    for (const int32_t value :
         std::span(decoded.as<int32_t>(), static_cast<size_t>(decoded.elements()))) {
      largest_ = std::max(largest_, value);
      const auto refuses = std::ranges::find_if_not(
          ranges_, [value](const LabelRange& range) { return range.Takes(value); });
      if (refuses == ranges_.end() || bad_) continue;
      bad_ = absl::StrFormat(
          "%s: %s: sample %d (the first is 0): %s: layer \"%s\" takes %s from 0 to %d, got %d",
          what_, array_.file, sample, refuses->where, refuses->layer, refuses->state,
          refuses->largest, value);
      bad_value_ = value;
    }
    return absl::OkStatus();
  }

  // The first label that some layer does not take, once all have been looked at.
  absl::Status Told() const {
    if (!bad_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        *bad_, largest_ > bad_value_ ? absl::StrCat(", and up to ", largest_, " in others") : "",
        "; correct the data, or the layer"));
  }

 private:
  const Dataset& dataset_;
  const std::string what_;
  const FedInput& fed_;
  const size_t index_;
  const DataArray& array_;
  const std::vector<LabelRange> ranges_;
  const DType dtype_;
  const Decoder decoder_;
  std::vector<std::byte> memory_;  // of a sample that is decoded
  std::optional<std::string> bad_;
  int32_t bad_value_ = 0, largest_ = 0;
};

}  // namespace

absl::StatusOr<std::string> CheckData(const Dataset& dataset, const NetPlan& net,
                                      const std::string& what) {
  std::vector<CheckedInput> inputs;
  std::string sizes = absl::StrCat(dataset.size());
  for (int input = 0; input < net.spec.inputs; ++input) {
    inputs.emplace_back(dataset, net, input, what);
    absl::StrAppend(&sizes, inputs.back().Describe());
  }
  Sha256Digest digest;
  digest.Add(sizes);
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    for (CheckedInput& input : inputs) RETURN_IF_ERROR(input.Look(sample, digest));
  }
  for (const CheckedInput& input : inputs) RETURN_IF_ERROR(input.Told());
  return digest.Hex().substr(0, 32);
}

}  // namespace gyre
