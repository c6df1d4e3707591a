#include "engine/training/evaluation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

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

DType ComputeTypeOf(const TrainerConfig& config) {
  return config.precision() == TrainerConfig::F64 ? DType::kF64 : DType::kF32;
}

int64_t TestBatchOf(const TrainerConfig& config, int64_t test_samples) {
  return std::min(config.has_test_batch() ? config.test_batch() : config.batch(), test_samples);
}

absl::StatusOr<InputMap> MapInputs(const Parsed<NetConfig>& net, const DataConfig& data,
                                   const Dataset& dataset) {
  InputMap map;
  for (int i = 0; i < net.message->input_size(); ++i) {
    const InputConfig& input = net.message->input(i);
    const auto error = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: input \"%s\": %s", net.source->Where(input), input.name(), what));
    };
    if (input.name() == data.image_input()) {
      map.image = i;
      const Shape& samples = dataset.sample_shape();
      if (!std::ranges::equal(input.dims(), samples.dims())) {
        return error(absl::StrFormat("has dims [%s], but the data set's samples are %s",
                                     absl::StrJoin(input.dims(), ", "), samples.ToString()));
      }
      if (input.type() != InputConfig::REAL) return error("is fed by images; expected type REAL");
    } else if (input.name() == data.label_input()) {
      map.label = i;
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
  return map;
}

Net::SumStatistic StatisticSummer(CommunicationThread& communication) {
  return [&communication](Stream& stream, absl::string_view label, Tensor statistic) {
    if (communication.size() == 1) return absl::OkStatus();  // it is the sum
    std::vector<std::byte> bytes(statistic.bytes());
    RETURN_IF_ERROR(stream.Copy(bytes.data(), statistic.data, bytes.size()));
    RETURN_IF_ERROR(stream.Synchronize());
    RETURN_IF_ERROR(
        communication.Sum(std::string(label), {bytes.data(), statistic.shape, statistic.dtype}));
    RETURN_IF_ERROR(stream.Copy(statistic.data, bytes.data(), bytes.size()));
    return stream.Synchronize();
  };
}

namespace {

// Runs `net` over `batches` batches of a data set from position `first` on; adds to `totals`.
absl::Status EvaluateWith(const Net& net, int64_t first, int64_t batches, const Model& model,
                          const Dataset& dataset, const InputMap& inputs, Device& device,
                          Stream& stream, CommunicationThread& communication,
                          const std::function<void(int64_t)>& progress,
                          std::vector<Metric>& totals) {
  const NetSpec& spec = net.plan().spec;
  const ModelOptions& options = model.plan().options;
  const Share share = ShareOf(spec.global_batch, options.rank, options.ranks);
  ASSIGN_OR_RETURN(
      const auto loader,
      BatchLoader::Create(dataset, SampleOrder(dataset.size(), 0, /*shuffle=*/false), device,
                          {.dtype = spec.compute,
                           .first_position = first + share.first,
                           .count = share.count,
                           .advance = spec.global_batch}));
  ASSIGN_OR_RETURN(StepBuffer buffer, StepBuffer::Create(device, net));
  const Net::SumStatistic sum = StatisticSummer(communication);
  for (int64_t b = 0; b < batches; ++b) {
    ASSIGN_OR_RETURN(const Batch batch, loader->Next());
    StepScalars scalars;
    scalars.first_sample = static_cast<uint64_t>(batch.first_position);
    buffer.SetScalars(scalars);
    RETURN_IF_ERROR(buffer.Upload(stream));
    RETURN_IF_ERROR(CopyInputs(stream, net, inputs, batch));
    RETURN_IF_ERROR(net.Forward(stream, sum));
    RETURN_IF_ERROR(buffer.Download(stream));
    RETURN_IF_ERROR(stream.Synchronize());
    RETURN_IF_ERROR(Annotate(buffer.CheckFault(batch), "test data"));
    loader->Release(batch);
    const double* values = buffer.metrics().as<double>();
    for (size_t m = 0; m < totals.size(); ++m) {
      totals[m].sum += values[2 * m];
      totals[m].count += values[2 * m + 1];
    }
    if (progress) progress(first + (b + 1) * spec.global_batch);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Metric>> Evaluate(const Model& model, const Dataset& dataset,
                                             const InputMap& inputs, Device& device, Stream& stream,
                                             CommunicationThread& communication,
                                             const std::function<void(int64_t)>& progress) {
  std::vector<Metric> totals = MetricsOf(model.test().front()->plan().spec);
  int64_t position = 0;
  for (const auto& net : model.test()) {
    const int64_t batch = net->plan().spec.global_batch;
    const int64_t batches = (dataset.size() - position) / batch;
    RETURN_IF_ERROR(EvaluateWith(*net, position, batches, model, dataset, inputs, device, stream,
                                 communication, progress, totals));
    position += batches * batch;
  }
  std::vector<double> sums;
  for (const Metric& m : totals) sums.insert(sums.end(), {m.sum, m.count});
  RETURN_IF_ERROR(communication.Sum(
      "test metrics", {sums.data(), Shape({static_cast<int64_t>(sums.size())}), DType::kF64}));
  for (size_t m = 0; m < totals.size(); ++m) {
    totals[m].sum = sums[2 * m];
    totals[m].count = sums[2 * m + 1];
  }
  return totals;
}

}  // namespace gyre
