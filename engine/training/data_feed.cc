#include "engine/training/data_feed.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/atomic_file.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Dataset>> OpenSamples(const Parsed<TrainerConfig>& trainer,
                                                     bool train) {
  const DataConfig& data = trainer.message->data();
  const char* field = train ? "train" : "test";
  auto dataset =
      OpenDataset(train ? data.train() : data.test(), data.normalization(), trainer.source->file());
  if (dataset.ok()) return dataset;
  return Annotate(dataset.status(),
                  absl::StrCat(trainer.source->Where(data, field), ": data.", field));
}

RunShape ShapeOf(const TrainerConfig& config, int rank, int ranks) {
  return {.global = config.batch(),
          .rank = rank,
          .ranks = ranks,
          .compute = config.precision() == TrainerConfig::F64 ? DType::kF64 : DType::kF32,
          .seed = config.seed()};
}

int64_t TestBatchOf(const TrainerConfig& config, int64_t test_samples) {
  return std::min(config.has_test_batch() ? config.test_batch() : config.batch(), test_samples);
}

absl::StatusOr<Feed> FeedOf(const Parsed<NetConfig>& net, const DataConfig& data,
                            const Dataset& dataset) {
  Feed feed;
  for (int i = 0; i < net.message->input_size(); ++i) {
    const InputConfig& input = net.message->input(i);
    const auto error = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: input \"%s\": %s", net.source->Where(input), input.name(), what));
    };
    if (input.name() == data.image_input()) {
      feed.image = i;
      const Shape& samples = dataset.sample_shape();
      if (!std::ranges::equal(input.dims(), samples.dims())) {
        return error(absl::StrFormat("has dims [%s], but the data set's samples are %s",
                                     absl::StrJoin(input.dims(), ", "), samples.ToString()));
      }
      if (input.type() != InputConfig::REAL) return error("is fed by images; expected type REAL");
    } else if (input.name() == data.label_input()) {
      feed.label = i;
      if (input.type() != InputConfig::LABEL || input.dims_size() != 0) {
        return error("is fed by labels; expected type LABEL and no dims");
      }
    } else {
      return error(absl::StrFormat(
          "nothing feeds it; the data set feeds \"%s\" (data.image_input) and \"%s\" "
          "(data.label_input)",
          data.image_input(), data.label_input()));
    }
  }
  return feed;
}

Feed FeedOn(DeviceKind device, Feed feed) {
  feed.ahead = device != DeviceKind::kCpu;
  return feed;
}

absl::StatusOr<TrainingData> OpenTrainingData(const Parsed<TrainerConfig>& trainer,
                                              const Parsed<NetConfig>& net) {
  const DataConfig& config = trainer.message->data();
  TrainingData data;
  ASSIGN_OR_RETURN(data.train, OpenSamples(trainer, /*train=*/true));
  ASSIGN_OR_RETURN(data.feed, FeedOf(net, config, *data.train));
  if (!config.has_test()) return data;
  ASSIGN_OR_RETURN(data.test, OpenSamples(trainer, /*train=*/false));
  RETURN_IF_ERROR(FeedOf(net, config, *data.test).status());
  return data;
}

std::string DigestOf(const Dataset& dataset) {
  constexpr int64_t kSamples = 64;
  std::string bytes = absl::StrCat(dataset.size(), " ", dataset.sample_shape().ToString());
  std::vector<float> image(static_cast<size_t>(dataset.sample_shape().elements()));
  for (int64_t i = 0; i < std::min(kSamples, dataset.size()); ++i) {
    const int64_t sample = i * dataset.size() / std::min(kSamples, dataset.size());
    int32_t label = 0;
    const absl::Status status =
        dataset.Read(sample, {image.data(), dataset.sample_shape(), DType::kF32}, &label);
    // One that cannot be read is met again in training, if it counts.
    absl::StrAppend(&bytes, " ", sample, status.ok() ? ":" : "?", label);
    if (!status.ok()) continue;
    bytes.append(reinterpret_cast<const char*>(image.data()), image.size() * sizeof(float));
  }
  return Sha256(bytes).substr(0, 16);
}

absl::StatusOr<std::unique_ptr<BatchLoader>> NewLoader(const Dataset& dataset, bool shuffle,
                                                       const RunShape& shape, const Feed& feed,
                                                       int64_t position, int depth,
                                                       Device& device) {
  const Share share = ShareOf(shape.global, shape.rank, shape.ranks);
  return BatchLoader::Create(dataset, SampleOrder(dataset.size(), shape.seed, shuffle), device,
                             {.dtype = feed.images(shape.compute),
                              .first_position = position + share.first,
                              .count = share.count,
                              .advance = shape.global,
                              .depth = depth});
}

}  // namespace gyre
