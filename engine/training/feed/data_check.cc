#include "engine/training/feed/data_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/files/atomic_file.h"
#include "engine/training/feed/bad_samples.h"
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

std::vector<LabelTaker> TakersOf(const NetSpec& net, int input) {
  std::vector<LabelTaker> takers;
  for (const NetNode& node : net.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const StateSpec& state = node.spec.states[i];
      if (net.InputViewedBy(node.inputs[i]) != input || state.largest < 0) continue;
      takers.push_back({net.values[static_cast<size_t>(input)].name,
                        absl::StrFormat("%s: layer \"%s\"", node.where, node.config->name()),
                        state.largest, state.name, IgnoredBy(*node.config)});
    }
  }
  return takers;
}

// A layer that takes no number below 0 of the input, such as a weight.  Empty: none.
std::string NotBelowZero(const NetSpec& net, int input) {
  for (const NetNode& node : net.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const StateSpec& state = node.spec.states[i];
      if (net.InputViewedBy(node.inputs[i]) != input || !state.not_negative) continue;
      return absl::StrFormat("%s: layer \"%s\" takes %s of 0 or more", node.where,
                             node.config->name(), state.name);
    }
  }
  return "";
}

// Of an input whose reals are made of classes.
std::vector<LabelTaker> TakerOfClasses(const FedInput& fed) {
  return {{fed.name, absl::StrFormat("input \"%s\"", fed.name), fed.classes - 1, "classes"}};
}

// First samples of an array that is not read as a whole.
constexpr int64_t kLookedAt = 16;

// Whether a layer computes with the input, and not only compares with it as a target.
bool IsComputedWith(const NetSpec& net, int input) {
  return std::ranges::any_of(net.nodes, [&](const NetNode& node) {
    const LayerSpec& spec = node.spec;
    const bool compares = spec.loss_output >= 0 || spec.metric >= 0 || spec.records >= 0;
    const size_t read = compares ? 1 : node.inputs.size();
    return std::ranges::any_of(node.inputs.begin(),
                               node.inputs.begin() + std::min(read, node.inputs.size()),
                               [&](int value) { return net.InputViewedBy(value) == input; });
  });
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
        is_label_(fed_.label || IsClassOf(fed_, dataset)),
        takers_(is_label_ && !fed_.label ? TakerOfClasses(fed_) : TakersOf(net.spec, input)),
        not_below_zero_(is_label_ ? "" : NotBelowZero(net.spec, input)),
        dtype_(is_label_ ? DType::kI32 : AccumulateDType(net.spec.shape.compute)),
        decoder_(array_.dtype, dtype_, fed_.normalization),
        decoded_(static_cast<size_t>(array_.shape.elements()) * SizeOf(dtype_)),
        finds_large_(!is_label_ && IsComputedWith(net.spec, input)),
        keeps_faulty_(net.feed.max_bad_samples > 0),
        // Each value of a byte is finite (FeedOf).
        skips_(is_label_ ? takers_.empty()
                         : array_.dtype == DType::kU8 && not_below_zero_.empty() &&
                               !(finds_large_ && HasLargePixels(fed_.normalization))) {}

  // What the elements mean.
  std::string Describe() const {
    std::string text =
        absl::StrCat(" ", std::string(DTypeName(array_.dtype)), array_.shape.ToString());
    if (!array_.digest.empty()) absl::StrAppend(&text, " ", array_.digest);
    if (is_label_) return text;
    for (size_t c = 0; c < fed_.normalization.mean.size(); ++c) {
      absl::StrAppendFormat(&text, " %.17g/%.17g", fed_.normalization.mean[c],
                            fed_.normalization.std[c]);
    }
    return text;
  }

  absl::Status Look(int64_t sample, Sha256Digest& digest) {
    const bool told = !array_.digest.empty();  // the contents are known without reading all
    if (told && (!finds_large_ || skips_ || sample >= kLookedAt)) return absl::OkStatus();
    const absl::StatusOr<Tensor> read = dataset_.Read(sample, index_, memory_, {});
    // Training and testing meet it again, and tell of it.
    if (!read.ok()) return keeps_faulty_ ? absl::OkStatus() : WithFaultAdvice(read.status());
    const Tensor& stored = *read;
    if (!told) digest.Add({static_cast<const char*>(stored.data), stored.bytes()});
    if (skips_) return absl::OkStatus();
    const Tensor decoded{decoded_.data(), array_.shape, dtype_};
    const absl::Status status = decoder_.Decode(stored, {}, decoded);
    if (!status.ok()) {
      if (keeps_faulty_) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(what_, ": ", array_.file, ": sample ",
                                                     dataset_.NumberInFile(sample),
                                                     " (the first is 0) ", status.message()));
    }
    if (finds_large_) LookForLarge(sample, stored, decoded);
    if (!is_label_) return CheckNotBelowZero(sample, decoded);
    for (const int32_t value :
         std::span(decoded.as<int32_t>(), static_cast<size_t>(decoded.elements()))) {
      largest_ = std::max(largest_, value);
      const auto refuses = std::ranges::find_if_not(
          takers_, [value](const LabelTaker& taker) { return taker.Takes(value); });
      if (refuses == takers_.end() || bad_) continue;
      bad_ = absl::StrFormat("%s: %s: sample %d (the first is 0): %s takes %s from 0 to %d, got %d",
                             what_, array_.file, dataset_.NumberInFile(sample), refuses->who,
                             refuses->state, refuses->largest, value);
      bad_value_ = value;
    }
    return absl::OkStatus();
  }

  // Once all samples have been looked at.  Errors: the first label that some layer does not take.
  absl::Status Tell(DataLook& look) const {
    if (large_) look.large.push_back(*large_);
    look.takers.insert(look.takers.end(), takers_.begin(), takers_.end());
    if (!bad_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        *bad_, largest_ > bad_value_ ? absl::StrCat(", and up to ", largest_, " in others") : "",
        "; correct the data, or the ", fed_.label ? "layer" : "net", Classes()));
  }

  // For people: the classes that a run's outputs must be as many as, or "".
  std::string Classes() const {
    const std::vector<std::string> names = ClassNamesOf(dataset_.fit());
    if (names.empty() || bad_value_ < 0 || bad_value_ >= static_cast<int64_t>(names.size())) {
      return "";
    }
    return absl::StrFormat("; %d is \"%s\", and there are %d classes", bad_value_,
                           names[static_cast<size_t>(bad_value_)], names.size());
  }

 private:
  static bool HasLargePixels(const Normalization& normalization) {
    return std::ranges::any_of(PixelValues(normalization),
                               [](double value) { return std::abs(value) > kLargeInput; });
  }

  absl::Status CheckNotBelowZero(int64_t sample, const Tensor& decoded) const {
    for (int64_t i = 0; !not_below_zero_.empty() && i < decoded.elements(); ++i) {
      const double value = StoredAt(decoded, i);
      if (value >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %s: sample %d (the first is 0): %s, got %g; correct the data", what_,
                          array_.file, dataset_.NumberInFile(sample), not_below_zero_, value));
    }
    return absl::OkStatus();
  }

  void LookForLarge(int64_t sample, const Tensor& stored, const Tensor& decoded) {
    const Shape& shape = array_.shape;
    const int64_t channels = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
    double most = large_ ? std::abs(large_->normalized) : kLargeInput;
    const auto look = [&](const auto* values) {
      for (int64_t i = 0; i < decoded.elements(); ++i) {
        const double value = values[i];
        if (!(std::abs(value) > most)) continue;
        most = std::abs(value);
        large_ = {fed_.name, dataset_.NumberInFile(sample), i % channels, StoredAt(stored, i),
                  value};
      }
    };
    dtype_ == DType::kF64 ? look(decoded.as<double>()) : look(decoded.as<float>());
  }
  static double StoredAt(const Tensor& stored, int64_t i) {
    if (stored.dtype == DType::kU8) return stored.as<uint8_t>()[i] / 255.0;
    return stored.dtype == DType::kF64 ? stored.as<double>()[i] : stored.as<float>()[i];
  }

  const Dataset& dataset_;
  const std::string what_;
  const FedInput& fed_;
  const size_t index_;
  const DataArray& array_;
  const bool is_label_;  // integers.  Else reals
  const std::vector<LabelTaker> takers_;
  const std::string not_below_zero_;  // who says so
  const DType dtype_;
  const Decoder decoder_;
  SampleMemory memory_;
  std::vector<std::byte> decoded_;  // a sample
  const bool finds_large_;
  const bool keeps_faulty_;
  const bool skips_;                 // samples are not decoded
  std::optional<LargeValue> large_;  // beyond kLargeInput, if there is one
  std::optional<std::string> bad_;
  int32_t bad_value_ = 0, largest_ = 0;
};

}  // namespace

absl::StatusOr<DataLook> CheckData(const Dataset& dataset, const NetPlan& net,
                                   const std::string& what) {
  std::vector<CheckedInput> inputs;
  std::string sizes = absl::StrCat(dataset.size());
  for (int input = 0; input < net.spec.inputs; ++input) {
    const std::string& name = net.feed.inputs[static_cast<size_t>(input)].name;
    if (ArrayOf(dataset, name) == dataset.arrays().size()) continue;  // weights of 1
    inputs.emplace_back(dataset, net, input, what);
    absl::StrAppend(&sizes, inputs.back().Describe());
  }
  Sha256Digest digest;
  digest.Add(sizes);
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    for (CheckedInput& input : inputs) RETURN_IF_ERROR(input.Look(sample, digest));
  }
  DataLook look{.digest = digest.Hex().substr(0, 32), .large = {}};
  for (const CheckedInput& input : inputs) RETURN_IF_ERROR(input.Tell(look));
  return look;
}

}  // namespace gyre
