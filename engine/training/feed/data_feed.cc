#include "engine/training/feed/data_feed.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/batches/split_dataset.h"
#include "engine/data/sets/data_memory.h"
#include "engine/runtime/check.h"
#include "engine/training/feed/normalization_fit.h"
#include "models/schema/describe.h"

namespace gyre {

bool DecodesSamples(const Dataset* dataset) {
  const auto is_decoded = [](const DataArray& array) { return !array.digest.empty(); };
  return dataset != nullptr && std::ranges::any_of(dataset->arrays(), is_decoded);
}

void SetWorkers(int wanted, int threads, RunData& data) {
  const bool decodes = DecodesSamples(data.train.get()) || DecodesSamples(data.test.get());
  data.feed.workers = wanted > 0 ? wanted : decodes ? threads : 1;
}

namespace {

// That there is a sequence for each contiguous row.
absl::Status CheckRows(const Parsed<TrainerConfig>& trainer, const Dataset& train) {
  const auto sequences = static_cast<int64_t>(train.sequences().size());
  const int64_t rows = SamplesAStep(*trainer.message);
  const bool contiguous = trainer.message->data().order() == DataConfig::CONTIGUOUS;
  if (!contiguous || sequences == 0 || rows <= sequences) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %d contiguous rows are more than the %d sequences of data.train; lower batch or "
      "accumulate",
      trainer.source->Where(*trainer.message, "batch"), rows, sequences));
}

}  // namespace

absl::StatusOr<RunData> OpenData(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                                 bool train, const Fit& fit, const PathOf& path_of,
                                 size_t memory_bytes) {
  const DataConfig& config = trainer.message->data();
  NetInputs inputs;
  for (const InputConfig& input : net.message->input()) {
    inputs.push_back({.name = input.name(),
                      .dims = {input.dims().begin(), input.dims().end()},
                      .label = input.type() == InputConfig::LABEL});
  }
  RunData data;
  if (memory_bytes > 0) data.memory = std::make_shared<DataMemory>(memory_bytes);
  const auto at = [&](const char* field) {
    return absl::StrCat(trainer.source->Where(config, field), ": data.", field);
  };
  const auto open = [&](bool training) -> absl::StatusOr<std::shared_ptr<const Dataset>> {
    auto dataset = OpenDataset(config, training, trainer.source->file(), inputs, data.fit, path_of,
                               data.memory);
    if (!dataset.ok()) return Annotate(dataset.status(), at(training ? "train" : "test"));
    // First what the net makes of it: the test data may be of the same kind.
    if (training) RETURN_IF_ERROR(FeedOf(net, trainer, dataset->get(), nullptr).status());
    return *std::move(dataset);
  };
  data.fit = fit;
  const auto known = data.fit.extract(kNormalizationFile);
  if (train || config.has_split()) {
    ASSIGN_OR_RETURN(data.train, open(/*training=*/true));
    data.fit = data.train->fit();
  }
  std::shared_ptr<const Dataset> training = data.train;
  if (config.has_split()) {
    auto split = Split(data.train, config.split(), config.label_input());
    if (!split.ok()) return Annotate(split.status(), at("split"));
    training = std::move(split->train);
    data.train = train ? training : nullptr;
    data.test = std::move(split->test);
  }
  if (training) RETURN_IF_ERROR(CheckRows(trainer, *training));
  if (config.has_test()) {
    ASSIGN_OR_RETURN(data.test, open(/*training=*/false));
    data.fit = data.test->fit();
  }
  const auto match = [&](const std::string& normalization) {
    return FeedOf(net, trainer, data.train.get(), data.test.get(), normalization);
  };
  std::string normalization = known ? known.mapped() : "";
  ASSIGN_OR_RETURN(data.feed, match(normalization));
  if (HasAuto(config)) {
    if (!known) {
      if (!training) {
        ASSIGN_OR_RETURN(training, open(/*training=*/true));
      }
      ASSIGN_OR_RETURN(normalization, MakeNormalization(config, *training, data.notes));
      ASSIGN_OR_RETURN(data.feed, match(normalization));
    }
    data.fit.emplace(kNormalizationFile, std::move(normalization));
    data.notes.insert(data.notes.begin(), DescribeNormalization(config, data.feed));
  } else if (known) {
    data.notes.push_back(absl::StrCat("weights: ", kOtherNormalization));
  }
  if (data.train && (data.feed.balanced || data.feed.weighs_classes)) {
    auto classes = ClassesOf(*data.train, ArrayOf(*data.train, config.label_input()));
    if (!classes.ok()) return Annotate(classes.status(), at("train"));
    data.feed.classes = std::make_shared<const SampleClasses>(*std::move(classes));
  }
  return data;
}

int64_t SamplesAStep(const TrainerConfig& config) { return config.batch() * config.accumulate(); }

namespace {

// Of so many rows, where samples come in rows; of batches as large, where they are of like lengths.
SampleOrder OrderOf(const Dataset& dataset, bool train, const Feed& feed, int64_t rows,
                    int64_t batch, uint64_t seed) {
  if (feed.contiguous) {
    return dataset.sequences().empty() ? SampleOrder::Contiguous(dataset.size(), rows)
                                       : SampleOrder::Sequences(dataset.sequences(), rows, seed);
  }
  if (!train) return SampleOrder::Contiguous(dataset.size(), 1);
  const ReadWindow window = dataset.window();
  const SampleOrder order = window.samples > 0
                                ? SampleOrder::Windowed(window.files, window.samples, seed)
                            : feed.bucketed ? SampleOrder::Bucketed(dataset.lengths(), batch, seed)
                            : feed.balanced ? SampleOrder::Balanced(feed.classes->of_sample, seed)
                                            : SampleOrder(dataset.size(), seed);
  return order.Repeated(feed.repeated);
}

// Of an order that is no longer than its rows make it.
int64_t PeriodOf(const TrainerConfig& config, const Dataset& dataset, int64_t rows) {
  const bool contiguous = config.data().order() == DataConfig::CONTIGUOUS;
  if (!contiguous || rows > dataset.size()) return dataset.size();
  Feed feed;
  feed.contiguous = true;
  return OrderOf(dataset, /*train=*/false, feed, rows, rows, config.seed()).period();
}

}  // namespace

int64_t TrainSamplesOf(const TrainerConfig& config, const Dataset& dataset) {
  return PeriodOf(config, dataset, SamplesAStep(config)) * config.data().augmentation().repeated();
}

int64_t TestSamplesOf(const TrainerConfig& config, const Dataset& dataset) {
  return PeriodOf(config, dataset, TestBatchOf(config, dataset));
}

std::vector<std::string> LeftOut(const TrainerConfig& config, const RunData& data) {
  std::vector<std::string> notes = data.notes;
  const auto add = [&](const char* name, const Dataset& dataset, int64_t used) {
    const int64_t all = dataset.size();
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
    for (const std::string& note : dataset.notes()) {
      notes.push_back(absl::StrCat("data.", name, ": ", note));
    }
  };
  if (const auto names = ClassNamesOf(data.fit); data.train && !names.empty()) {
    notes.push_back(absl::StrFormat("classes: %d (%s)", names.size(), Listed(names)));
  }
  if (data.train) {
    const int64_t repeated = config.data().augmentation().repeated();
    add("train", *data.train, TrainSamplesOf(config, *data.train) / repeated);
  }
  if (data.test) add("test", *data.test, TestSamplesOf(config, *data.test));
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
                             .changes = feed.changes,
                             .mixing = train ? feed.mixing : Mixing{},
                             .weighed_by = train && feed.weighs_classes ? feed.classes : nullptr,
                             .seed = shape.seed,
                             .first_position = position + share.first,
                             .count = share.count,
                             .advance = shape.global,
                             .depth = depth,
                             .workers = feed.workers};
  for (size_t i = 0; i < feed.inputs.size(); ++i) {
    const FedInput& fed = feed.inputs[i];
    options.arrays.push_back({.array = ArrayOf(dataset, fed.name),
                              .dtype = feed.type(i, shape.compute),
                              .normalization = fed.normalization,
                              .augmented = train && fed.augmented,
                              .mixed = train && fed.mixed,
                              .classes = IsClassOf(fed, dataset) ? fed.classes : 0,
                              .weight = fed.weight});
  }
  const int64_t rows = train ? shape.global * shape.accumulate : shape.global;
  return BatchLoader::Create(dataset, OrderOf(dataset, train, feed, rows, shape.global, shape.seed),
                             device, options);
}

}  // namespace gyre
