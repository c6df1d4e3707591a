#include "engine/training/feed/data_feed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"

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
class FeedMaker {
 public:
  FeedMaker(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer)
      : net_(net), trainer_(trainer), data_(trainer.message->data()) {
    for (const InputConfig& input : net.message->input()) {
      feed_.inputs.push_back({.name = input.name(), .label = input.type() == InputConfig::LABEL});
    }
    feed_.contiguous = data_.order() == DataConfig::CONTIGUOUS;
    feed_.bucketed = data_.order() == DataConfig::BUCKETED;
  }

  // Each input is fed, and no array is left over, but of `idx`, which has both.
  absl::Status Match(const Dataset& dataset, const DatasetConfig& config, const char* field) {
    for (const InputConfig& input : net_.message->input()) {
      const size_t array = ArrayOf(dataset, input.name());
      const absl::Status status =
          array == dataset.arrays().size()
              ? absl::InvalidArgumentError(absl::StrFormat(
                    "nothing feeds it; data.%s feeds %s%s", field, QuotedInputs(dataset),
                    config.has_idx() ? " (data.image_input and data.label_input)" : ""))
              : CheckArray(input, dataset.arrays()[array]);
      if (!status.ok()) {
        return Annotate(
            status, absl::StrFormat("%s: input \"%s\"", net_.source->Where(input), input.name()));
      }
    }
    // Bytes may come as such where they do in each data set.
    for (FedInput& fed : feed_.inputs) {
      const DType stored = dataset.arrays()[ArrayOf(dataset, fed.name)].dtype;
      const bool bytes = !fed.label && stored == DType::kU8;
      if (bytes && !matched_) fed.pixel_values = PixelValues(fed.normalization);
      if (!bytes) fed.pixel_values.clear();
    }
    matched_ = true;
    for (const ArrayConfig& array : config.arrays().array()) {
      RETURN_IF_ERROR(Find(array.input(), array, "input", absl::StrCat("data.", field)).status());
    }
    return absl::OkStatus();
  }

  // Shorter texts are padded: a recurrent layer that is not told would read on, and what it ends
  // with would be the padding's; attention would look at that.
  absl::Status CheckLengths(const Dataset& dataset, const char* field) const {
    if (!IsPadded(dataset)) return absl::OkStatus();
    for (const LayerConfig& layer : net_.message->layer()) {
      const bool takes =
          layer.has_lstm() || layer.has_gru() || layer.has_rnn() || layer.has_attention();
      if (!takes || std::ranges::find(layer.input(), kLength) != layer.input().end()) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: layer \"%s\": the texts of data.%s have lengths of their own, which it is not "
          "given; add input { name: \"%s\" type: LABEL } to the net, and \"%s\" to the layer's "
          "inputs, after the text",
          net_.source->Where(layer), layer.name(), field, kLength, kLength));
    }
    return absl::OkStatus();
  }

  // What says which input is meant says one that there is.
  absl::Status CheckNames() const {
    if (!data_.has_image_input()) return absl::OkStatus();
    return Find(data_.image_input(), data_, "image_input", "data.image_input").status();
  }

  // Once all data sets are matched.
  absl::Status Normalize() {
    for (const NormalizationConfig& config : data_.normalization()) {
      const std::string name = config.has_input() ? config.input() : data_.image_input();
      ASSIGN_OR_RETURN(const size_t input, Find(name, config, "input", "data.normalization"));
      FedInput& fed = feed_.inputs[input];
      if (fed.label) {
        return Error(config, "input",
                     absl::StrFormat("data.normalization: input \"%s\" takes labels", name));
      }
      ASSIGN_OR_RETURN(fed.normalization.mean, PerChannel(config, "mean", config.mean(), 0, input));
      ASSIGN_OR_RETURN(fed.normalization.std, PerChannel(config, "std", config.std(), 1, input));
      const size_t values = std::max(fed.normalization.mean.size(), fed.normalization.std.size());
      fed.normalization.mean.resize(values, fed.normalization.mean[0]);
      fed.normalization.std.resize(values, fed.normalization.std[0]);
      RETURN_IF_ERROR(CheckPixels(config, fed));
    }
    for (FedInput& fed : feed_.inputs) {
      if (!fed.pixel_values.empty()) fed.pixel_values = PixelValues(fed.normalization);
    }
    return absl::OkStatus();
  }

  absl::Status Augment() {
    const AugmentationConfig& config = data_.augmentation();
    feed_.augmentation = {.flip = config.flip(), .shift = config.shift()};
    const bool varies = config.flip() || config.shift() > 0;
    std::vector<std::string> names(config.input().begin(), config.input().end());
    if (names.empty() && varies) names = {data_.image_input()};
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(const size_t input, Find(name, config, "input", "data.augmentation"));
      feed_.inputs[input].augmented = varies;
      const auto& dims = net_.message->input(static_cast<int>(input)).dims();
      if (dims.size() != 3) {
        return Error(config, "input",
                     absl::StrFormat("data.augmentation: expected an input of dims [height, width, "
                                     "channels], but \"%s\" has [%s]",
                                     name, absl::StrJoin(dims, ", ")));
      }
      if (config.shift() < std::min(dims[0], dims[1])) continue;
      return Error(config, "shift",
                   absl::StrFormat("data.augmentation.shift must be less than the height and width "
                                   "of input \"%s\", %d and %d, got %d",
                                   name, dims[0], dims[1], config.shift()));
    }
    return absl::OkStatus();
  }

  Feed feed() { return std::move(feed_); }

 private:
  absl::Status Error(const google::protobuf::Message& at, const char* field,
                     const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(trainer_.source->Where(at, field), ": ", what));
  }

  // What 0, which augmentation moves in, and bytes become.
  absl::Status CheckPixels(const NormalizationConfig& config, const FedInput& fed) const {
    const auto& [mean, std] = fed.normalization;
    for (size_t c = 0; c < std.size(); ++c) {
      for (const double x : {0.0, 1.0}) {
        if (std::isfinite(static_cast<float>((x - mean[c]) / std[c]))) continue;
        return Error(config, "std",
                     absl::StrFormat("data.normalization of input \"%s\": (%g - %g) / %g is beyond "
                                     "F32; raise std",
                                     fed.name, x, mean[c], std[c]));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Find(const std::string& name, const google::protobuf::Message& at,
                              const char* field, const std::string& who) const {
    const auto found = std::ranges::find(feed_.inputs, name, &FedInput::name);
    if (found != feed_.inputs.end()) return static_cast<size_t>(found - feed_.inputs.begin());
    std::vector<std::string> names;
    for (const FedInput& fed : feed_.inputs) names.push_back(fed.name);
    return Error(at, field,
                 absl::StrFormat("%s: the net has no input \"%s\"; it has \"%s\"", who, name,
                                 absl::StrJoin(names, "\", \"")));
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

  // The values, or `otherwise` if there are none.
  absl::StatusOr<std::vector<double>> PerChannel(
      const NormalizationConfig& config, const char* field,
      const google::protobuf::RepeatedField<double>& values, double otherwise, size_t input) const {
    if (values.empty()) return std::vector<double>{otherwise};
    const auto& dims = net_.message->input(static_cast<int>(input)).dims();
    const int64_t channels = dims.empty() ? 1 : dims[dims.size() - 1];
    if (values.size() == 1 || values.size() == channels) {
      return std::vector<double>(values.begin(), values.end());
    }
    return Error(
        config, field,
        absl::StrFormat("data.normalization.%s of input \"%s\": expected 1 value%s, got %d", field,
                        feed_.inputs[input].name,
                        channels > 1 ? absl::StrCat(" or ", channels, ", one a channel") : "",
                        values.size()));
  }

  const Parsed<NetConfig>& net_;
  const Parsed<TrainerConfig>& trainer_;
  const DataConfig& data_;
  bool matched_ = false;  // with a data set
  Feed feed_;
};

}  // namespace

size_t ArrayOf(const Dataset& dataset, const std::string& input) {
  const std::vector<DataArray>& arrays = dataset.arrays();
  return static_cast<size_t>(std::ranges::find(arrays, input, &DataArray::input) - arrays.begin());
}

bool IsPadded(const Dataset& dataset) {
  return std::ranges::any_of(dataset.arrays(), [&](const DataArray& array) {
    return array.shape.rank() > 0 &&
           std::ranges::any_of(dataset.lengths(), [&](int32_t n) { return n < array.shape[0]; });
  });
}

absl::StatusOr<Feed> FeedOf(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                            const Dataset* train, const Dataset* test) {
  const DataConfig& data = trainer.message->data();
  FeedMaker maker(net, trainer);
  if (train != nullptr) {
    RETURN_IF_ERROR(maker.Match(*train, data.train(), "train"));
    RETURN_IF_ERROR(maker.CheckLengths(*train, "train"));
  }
  if (test != nullptr) {
    RETURN_IF_ERROR(maker.Match(*test, data.test(), "test"));
    RETURN_IF_ERROR(maker.CheckLengths(*test, "test"));
  }
  RETURN_IF_ERROR(maker.CheckNames());
  RETURN_IF_ERROR(maker.Normalize());
  RETURN_IF_ERROR(maker.Augment());
  return maker.feed();
}

Feed FeedOfBytes(const NetConfig& net) {
  Feed feed;
  for (const InputConfig& input : net.input()) {
    FedInput& fed = feed.inputs.emplace_back();
    fed.name = input.name();
    fed.label = input.type() == InputConfig::LABEL;
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

absl::StatusOr<RunData> OpenData(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                                 bool train, const Fit& fit, const PathOf& path_of) {
  const DataConfig& config = trainer.message->data();
  const auto open = [&](bool training, const Fit& by) {
    auto dataset = OpenDataset(config, training, trainer.source->file(), by, path_of);
    const char* field = training ? "train" : "test";
    if (dataset.ok()) return dataset;
    return absl::StatusOr<std::unique_ptr<Dataset>>(Annotate(
        dataset.status(), absl::StrCat(trainer.source->Where(config, field), ": data.", field)));
  };
  RunData data;
  data.fit = fit;
  if (train) {
    ASSIGN_OR_RETURN(data.train, open(true, data.fit));
    data.fit = data.train->fit();
    // First what the net makes of it: the test data may be of the same kind.
    RETURN_IF_ERROR(FeedOf(net, trainer, data.train.get(), nullptr).status());
    const auto sequences = static_cast<int64_t>(data.train->sequences().size());
    const int64_t rows = SamplesAStep(*trainer.message);
    if (config.order() == DataConfig::CONTIGUOUS && sequences > 0 && rows > sequences) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %d contiguous rows are more than the %d shots of data.train; lower batch or "
          "accumulate",
          trainer.source->Where(*trainer.message, "batch"), rows, sequences));
    }
  }
  if (config.has_test()) {
    ASSIGN_OR_RETURN(data.test, open(false, data.fit));
    data.fit = data.test->fit();
  }
  ASSIGN_OR_RETURN(data.feed, FeedOf(net, trainer, data.train.get(), data.test.get()));
  return data;
}

std::string SampledDigestOf(const Dataset& dataset, const Feed& feed) {
  constexpr int64_t kSamples = 64;
  std::string bytes = absl::StrCat(dataset.size());
  for (const FedInput& fed : feed.inputs) {
    const Shape& shape = dataset.arrays()[ArrayOf(dataset, fed.name)].shape;
    if (!fed.label || shape.rank() > 0) absl::StrAppend(&bytes, " ", shape.ToString());
  }
  for (int64_t i = 0; i < std::min(kSamples, dataset.size()); ++i) {
    const int64_t sample = i * dataset.size() / std::min(kSamples, dataset.size());
    std::string labels, values;
    bool readable = true;
    for (const FedInput& fed : feed.inputs) {
      const size_t index = ArrayOf(dataset, fed.name);
      const DataArray& array = dataset.arrays()[index];
      const absl::StatusOr<Tensor> stored = dataset.Read(sample, index);
      // One that cannot be read is met again in training, if it counts.
      readable = readable && stored.ok();
      if (!stored.ok()) continue;
      const DType dtype = fed.label ? DType::kI32 : DType::kF32;
      std::vector<std::byte> memory(static_cast<size_t>(array.shape.elements()) * SizeOf(dtype));
      const Tensor decoded{memory.data(), array.shape, dtype};
      // Nor is what cannot be trained on told here.
      Decoder(array.dtype, dtype, fed.normalization).Decode(*stored, {}, decoded).IgnoreError();
      if (fed.label) {
        const int32_t* first = decoded.as<int32_t>();
        absl::StrAppend(&labels, absl::StrJoin(first, first + decoded.elements(), ","));
      } else {
        values.append(reinterpret_cast<const char*>(memory.data()), memory.size());
      }
    }
    absl::StrAppend(&bytes, " ", sample, readable ? ":" : "?", labels);
    bytes += values;
  }
  return Sha256(bytes).substr(0, 16);
}

int64_t SamplesAStep(const TrainerConfig& config) { return config.batch() * config.accumulate(); }

namespace {

// Of so many rows, where samples come in rows; of batches as large, where they are of like lengths.
SampleOrder OrderOf(const Dataset& dataset, bool train, bool contiguous, bool bucketed,
                    int64_t rows, int64_t batch, uint64_t seed) {
  if (contiguous) {
    return dataset.sequences().empty() ? SampleOrder::Contiguous(dataset.size(), rows)
                                       : SampleOrder::Sequences(dataset.sequences(), rows, seed);
  }
  if (!train) return SampleOrder::Contiguous(dataset.size(), 1);
  return bucketed ? SampleOrder::Bucketed(dataset.lengths(), batch, seed)
                  : SampleOrder(dataset.size(), seed);
}

// Of an order that is no longer than its rows make it.
int64_t PeriodOf(const TrainerConfig& config, const Dataset& dataset, int64_t rows) {
  const bool contiguous = config.data().order() == DataConfig::CONTIGUOUS;
  if (!contiguous || rows > dataset.size()) return dataset.size();
  return OrderOf(dataset, /*train=*/false, contiguous, false, rows, rows, config.seed()).period();
}

}  // namespace

int64_t TrainSamplesOf(const TrainerConfig& config, const Dataset& dataset) {
  return PeriodOf(config, dataset, SamplesAStep(config));
}

int64_t TestSamplesOf(const TrainerConfig& config, const Dataset& dataset) {
  return PeriodOf(config, dataset, TestBatchOf(config, dataset));
}

std::vector<std::string> LeftOut(const TrainerConfig& config, const RunData& data) {
  std::vector<std::string> notes;
  const auto add = [&](const char* name, int64_t all, int64_t used) {
    if (used < all) {
      notes.push_back(
          absl::StrFormat("data.%s: %d of %d samples are left out: beyond rows of one length", name,
                          all - used, all));
    }
    if (used > all) {
      notes.push_back(
          absl::StrFormat("data.%s: %d samples of padding behind shorter sequences, beside %d",
                          name, used - all, all));
    }
  };
  const auto add_notes = [&](const char* name, const Dataset& dataset) {
    for (const std::string& note : dataset.notes()) {
      notes.push_back(absl::StrCat("data.", name, ": ", note));
    }
  };
  if (data.train) {
    add("train", data.train->size(), TrainSamplesOf(config, *data.train));
    add_notes("train", *data.train);
  }
  if (data.test) {
    add("test", data.test->size(), TestSamplesOf(config, *data.test));
    add_notes("test", *data.test);
  }
  return notes;
}

int64_t TestBatchOf(const TrainerConfig& config, const Dataset& dataset) {
  const bool in_rows =
      config.data().order() == DataConfig::CONTIGUOUS && !dataset.sequences().empty();
  return std::min(config.has_test_batch() ? config.test_batch() : config.batch(),
                  in_rows ? static_cast<int64_t>(dataset.sequences().size()) : dataset.size());
}

absl::StatusOr<std::unique_ptr<BatchLoader>> NewLoader(const Dataset& dataset, bool train,
                                                       const RunShape& shape, const Feed& feed,
                                                       int64_t position, int depth,
                                                       Device& device) {
  const Share share = ShareOf(shape.global, shape.rank, train ? shape.workers() : shape.ranks);
  BatchLoaderOptions options{.arrays = {},
                             .augmentation = feed.augmentation,
                             .seed = shape.seed,
                             .first_position = position + share.first,
                             .count = share.count,
                             .advance = shape.global,
                             .depth = depth};
  for (size_t i = 0; i < feed.inputs.size(); ++i) {
    const FedInput& fed = feed.inputs[i];
    options.arrays.push_back({.array = ArrayOf(dataset, fed.name),
                              .dtype = feed.type(i, shape.compute),
                              .normalization = fed.normalization,
                              .augmented = train && fed.augmented});
  }
  const int64_t rows = train ? shape.global * shape.accumulate : shape.global;
  return BatchLoader::Create(
      dataset,
      OrderOf(dataset, train, feed.contiguous, feed.bucketed, rows, shape.global, shape.seed),
      device, options);
}

}  // namespace gyre
