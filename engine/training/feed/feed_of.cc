#include "engine/training/feed/feed_of.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"
#include "engine/training/feed/augment_feed.h"
#include "engine/training/feed/normalization_fit.h"

namespace gyre {
namespace {

// The input, if there is one, that takes how long each text is.
constexpr char kLength[] = "length";

std::string QuotedInputs(const Dataset& dataset) {
  return absl::StrJoin(dataset.arrays(), ", ", [](std::string* text, const DataArray& array) {
    absl::StrAppend(text, "\"", array.input, "\"");
  });
}

// The feed being made of a net and a trainer.
class FeedMaker : public FeedDraft {
 public:
  FeedMaker(const Parsed<NetConfig>& net_of_run, const Parsed<TrainerConfig>& trainer_of_run)
      : FeedDraft{.net = net_of_run, .trainer = trainer_of_run} {
    for (const InputConfig& input : net.message->input()) {
      const bool label = input.type() == InputConfig::LABEL;
      const bool is_target = !label && input.name() == data.label_input();
      feed.inputs.push_back(
          {.name = input.name(),
           .label = label,
           .classes = is_target && input.dims_size() == 1 ? input.dims(0) : 0,
           .weight = !label && input.dims_size() == 0 && input.name() == data.weight_input()});
    }
    feed.contiguous = data.order() == DataConfig::CONTIGUOUS;
    feed.bucketed = data.order() == DataConfig::BUCKETED;
    feed.balanced = data.order() == DataConfig::BALANCED;
    feed.repeated = data.augmentation().repeated();
    feed.weighs_classes = data.class_weight() == DataConfig::AUTO;
    feed.max_bad_samples = data.max_bad_samples();
  }

  // Each input is fed, with lengths if it is padded, and no array is left over, but of `idx`, which
  // has both.
  absl::Status Match(const Dataset& dataset, const DatasetConfig& config, const char* field) {
    for (const InputConfig& input : net.message->input()) {
      const size_t array = ArrayOf(dataset, input.name());
      if (array == dataset.arrays().size() && FedOf(input.name())->weight) continue;
      const absl::Status status =
          array == dataset.arrays().size()
              ? absl::InvalidArgumentError(absl::StrFormat(
                    "nothing feeds it; data.%s feeds %s%s", field, QuotedInputs(dataset),
                    config.has_idx() ? " (data.image_input and data.label_input)" : ""))
          : IsClassOf(*FedOf(input.name()), dataset) ? absl::OkStatus()
                                                     : CheckArray(input, dataset.arrays()[array]);
      if (!status.ok()) {
        return Annotate(
            status, absl::StrFormat("%s: input \"%s\"", net.source->Where(input), input.name()));
      }
    }
    // Bytes may come as such where they do in each data set.
    for (FedInput& fed : feed.inputs) {
      const size_t array = ArrayOf(dataset, fed.name);
      const bool stored =
          array < dataset.arrays().size() && dataset.arrays()[array].dtype == DType::kU8;
      if (!stored) no_bytes.push_back(fed.name);
      const bool bytes = stored && !fed.label && !fed.weight && !IsClassOf(fed, dataset);
      if (bytes && !matched_) fed.pixel_values = PixelValues(fed.normalization);
      if (!bytes) fed.pixel_values.clear();
      of_classes_ |= IsClassOf(fed, dataset);
    }
    matched_ = true;
    for (const ArrayConfig& array : config.arrays().array()) {
      RETURN_IF_ERROR(Find(array.input(), array, "input", absl::StrCat("data.", field)).status());
    }
    for (const DatasetConfig& beside : config.beside()) {
      for (const ArrayConfig& array : beside.arrays().array()) {
        RETURN_IF_ERROR(Find(array.input(), array, "input", absl::StrCat("data.", field)).status());
      }
    }
    return CheckLengths(dataset, field);
  }

  // Shorter texts are padded: a recurrent layer that is not told would read on, and what it ends
  // with would be the padding's; attention would look at that.
  absl::Status CheckLengths(const Dataset& dataset, const char* field) const {
    if (!IsPadded(dataset)) return absl::OkStatus();
    for (const LayerConfig& layer : net.message->layer()) {
      const bool takes =
          layer.has_lstm() || layer.has_gru() || layer.has_rnn() || layer.has_attention();
      if (!takes || std::ranges::find(layer.input(), kLength) != layer.input().end()) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: layer \"%s\": the texts of data.%s have lengths of their own, which it is not "
          "given; add input { name: \"%s\" type: LABEL } to the net, and \"%s\" to the layer's "
          "inputs, after the text",
          net.source->Where(layer), layer.name(), field, kLength, kLength));
    }
    return absl::OkStatus();
  }

  // Once all data sets are matched.  `normalization` is that of FeedOf.
  absl::Status Normalize(const std::string& normalization) {
    for (const NormalizationConfig& config : data.normalization()) {
      const std::string& name = InputOf(config, data);
      ASSIGN_OR_RETURN(FedInput* const found, Find(name, config, "input", "data.normalization"));
      FedInput& fed = *found;
      if (fed.label || fed.weight) {
        return Error(config, "input", "data.normalization: input \"%s\" takes %s", name,
                     fed.label ? "labels" : "weights");
      }
      if (fed.classes > 0 && of_classes_) {
        return Error(config, "input", "data.normalization: input \"%s\" takes classes", name);
      }
      if (config.auto_()) {
        ASSIGN_OR_RETURN(fed.normalization, OfSamples(config, normalization, fed));
        continue;
      }
      RETURN_IF_ERROR(CheckValues(config, "mean", config.mean_size(), fed));
      RETURN_IF_ERROR(CheckValues(config, "std", config.std_size(), fed));
      fed.normalization = StatedNormalization(config);
      RETURN_IF_ERROR(CheckPixels(config, fed));
    }
    for (FedInput& fed : feed.inputs) {
      if (!fed.pixel_values.empty()) fed.pixel_values = PixelValues(fed.normalization);
    }
    return absl::OkStatus();
  }

  // What samples weigh, and what needs weights.
  absl::Status Weigh() {
    const bool weighs = feed.weighs_classes;
    if (!weighs && feed.max_bad_samples == 0) return absl::OkStatus();
    const char* const field = weighs ? "class_weight" : "max_bad_samples";
    const std::string& name = data.weight_input();
    const FedInput* const fed = FedOf(name);
    if (fed == nullptr || !fed->weight) {
      return Error(
          data, field,
          "data.%s weighs samples, %s; write input { name: \"%s\" } in the net, and \"%s\" as last "
          "input of its losses and accuracies",
          field,
          fed == nullptr
              ? absl::StrFormat("but the net has no input \"%s\"", name)
              : absl::StrFormat("but the net's input \"%s\" is not REAL without dims", name),
          name, name);
    }
    for (const LayerConfig& layer : net.message->layer()) {
      if (!IsLoss(layer) || std::ranges::count(layer.input(), name) > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: layer \"%s\": data.%s weighs samples, which this loss does not "
                          "take; write \"%s\" as "
                          "its last input",
                          net.source->Where(layer), layer.name(), field, name));
    }
    return absl::OkStatus();
  }

  // That there are classes to draw and to weigh by.
  absl::Status CheckClasses(const Dataset& train) const {
    if (!feed.balanced && !feed.weighs_classes) return absl::OkStatus();
    const size_t array = ArrayOf(train, data.label_input());
    if (array < train.arrays().size() && HasClasses(train.arrays()[array])) return absl::OkStatus();
    const char* const field = feed.balanced ? "order" : "class_weight";
    return Error(data, field,
                 "data.%s counts the samples of each class, but data.train has no class, an "
                 "integer a sample, for \"%s\" (data.label_input)",
                 field, data.label_input());
  }

 private:
  // What 0, which augmentation moves in, and bytes become.
  absl::Status CheckPixels(const NormalizationConfig& config, const FedInput& fed) const {
    const auto& [mean, std] = fed.normalization;
    for (size_t c = 0; c < std.size(); ++c) {
      for (const double x : {0.0, 1.0}) {
        if (std::isfinite(static_cast<float>((x - mean[c]) / std[c]))) continue;
        return Error(config, "std",
                     "data.normalization of input \"%s\": (%g - %g) / %g is beyond F32; raise std",
                     fed.name, x, mean[c], std[c]);
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckArray(const InputConfig& input, const DataArray& array) {
    if (!std::ranges::equal(input.dims(), array.shape.dims())) {
      return absl::InvalidArgumentError(
          absl::StrFormat("has dims [%s], but the samples of %s are %s",
                          absl::StrJoin(input.dims(), ", "), array.file, array.shape.ToString()));
    }
    const bool label = input.type() == InputConfig::LABEL;
    if (Decoder::CanDecode(array.dtype, label ? DType::kI32 : DType::kF64)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "is of type %s, which takes %s, but %s holds %s", label ? "LABEL" : "REAL",
        label ? "integers" : "bytes and reals", array.file, std::string(DTypeName(array.dtype))));
  }

  absl::StatusOr<Normalization> OfSamples(const NormalizationConfig& config,
                                          const std::string& text, const FedInput& fed) const {
    const int64_t channels = ChannelsOf(Dims(fed));
    if (text.empty()) {
      const auto values = static_cast<size_t>(channels);
      return Normalization{std::vector<double>(values, 0), std::vector<double>(values, 1)};
    }
    auto normalization = ParseNormalization(text, fed.name, channels);
    if (normalization.ok()) return normalization;
    return Error(config, "auto", "%s", normalization.status().message());
  }

  absl::Status CheckValues(const NormalizationConfig& config, const char* field, int values,
                           const FedInput& fed) const {
    const int64_t channels = ChannelsOf(Dims(fed));
    if (values <= 1 || values == channels) return absl::OkStatus();
    return Error(config, field, "data.normalization.%s of input \"%s\": expected 1 value%s, got %d",
                 field, fed.name,
                 channels > 1 ? absl::StrCat(" or ", channels, ", one a channel") : "", values);
  }

  bool matched_ = false;     // with a data set
  bool of_classes_ = false;  // a data set has classes where the net takes distributions
};

}  // namespace

bool IsClassOf(const FedInput& fed, const Dataset& dataset) {
  const size_t array = ArrayOf(dataset, fed.name);
  return fed.classes > 0 && array < dataset.arrays().size() && HasClasses(dataset.arrays()[array]);
}

size_t ArrayOf(const Dataset& dataset, const std::string& input) {
  const std::vector<DataArray>& arrays = dataset.arrays();
  return static_cast<size_t>(std::ranges::find(arrays, input, &DataArray::input) - arrays.begin());
}

bool IsPicture(const InputConfig& input) {
  if (input.type() == InputConfig::LABEL || input.dims_size() != 3) return false;
  const int64_t channels = input.dims(2);
  return channels == 1 || channels == 3 || channels == 4;
}

bool IsPadded(const Dataset& dataset) {
  return std::ranges::any_of(dataset.arrays(), [&](const DataArray& array) {
    return array.shape.rank() > 0 &&
           std::ranges::any_of(dataset.lengths(), [&](int32_t n) { return n < array.shape[0]; });
  });
}

absl::StatusOr<Feed> FeedOf(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                            const Dataset* train, const Dataset* test,
                            const std::string& normalization) {
  const DataConfig& data = trainer.message->data();
  FeedMaker maker(net, trainer);
  if (train != nullptr) {
    RETURN_IF_ERROR(maker.Match(*train, data.train(), "train"));
    RETURN_IF_ERROR(maker.CheckClasses(*train));
  }
  if (test != nullptr) {
    RETURN_IF_ERROR(maker.Match(*test, data.has_split() ? data.train() : data.test(), "test"));
  }
  if (data.has_image_input()) {
    RETURN_IF_ERROR(
        maker.Find(data.image_input(), data, "image_input", "data.image_input").status());
  }
  RETURN_IF_ERROR(maker.Normalize(normalization));
  RETURN_IF_ERROR(AugmentFeed(maker));
  RETURN_IF_ERROR(maker.Weigh());
  return std::move(maker.feed);
}

Feed FeedOfValues(const NetConfig& net) {
  Feed feed;
  for (const InputConfig& input : net.input()) {
    feed.inputs.push_back({.name = input.name(), .label = input.type() == InputConfig::LABEL});
  }
  return feed;
}

Feed FeedOfBytes(const NetConfig& net) {
  Feed feed = FeedOfValues(net);
  for (FedInput& fed : feed.inputs) {
    if (fed.label) continue;
    fed.normalization = {.mean = {0.5}, .std = {0.5}};
    fed.pixel_values = PixelValues(fed.normalization);
  }
  return feed;
}

Feed FeedOn(DeviceKind device, Feed feed) {
  feed.ahead = device != DeviceKind::kCpu;
  return feed;
}

}  // namespace gyre
