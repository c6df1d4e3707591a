#include "engine/training/evaluation.h"

#include <algorithm>
#include <cstring>

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

std::vector<Metric> MetricsOf(const NetSpec& net) {
  std::vector<Metric> metrics;
  for (const NetNode& node : net.nodes) {
    if (node.spec.metric < 0) continue;
    metrics.push_back({.name = node.config->name(),
                       .is_loss = node.spec.loss_output >= 0,
                       .weight = node.spec.loss_weight});
  }
  return metrics;
}

double TotalLoss(const std::vector<Metric>& metrics) {
  double total = 0;
  for (const Metric& metric : metrics) {
    if (metric.is_loss) total += metric.weight * metric.value();
  }
  return total;
}

absl::StatusOr<StepBuffer> StepBuffer::Create(Device& device, const Net& net) {
  StepBuffer buffer;
  buffer.net_ = &net;
  const size_t metrics = MetricsOf(net.plan().spec).size() * 2 * sizeof(double);
  const auto pinned = [&](size_t bytes) {
    return Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes);
  };
  ASSIGN_OR_RETURN(buffer.scalars_, pinned(sizeof(StepScalars)));
  ASSIGN_OR_RETURN(buffer.fault_, pinned(2 * sizeof(Fault)));
  ASSIGN_OR_RETURN(buffer.metrics_, pinned(metrics));
  const Fault none;
  std::memcpy(buffer.fault_.data() + sizeof(Fault), &none, sizeof(none));
  return buffer;
}

absl::Status StepBuffer::UploadScalars(Stream& stream, const StepScalars& scalars) {
  std::memcpy(scalars_.data(), &scalars, sizeof(scalars));
  return stream.Copy(net_->step_scalars(), scalars_.data(), sizeof(scalars));
}

absl::Status StepBuffer::Upload(Stream& stream, const StepScalars& scalars, const Batch& batch,
                                const InputMap& inputs) {
  RETURN_IF_ERROR(UploadScalars(stream, scalars));
  RETURN_IF_ERROR(stream.Copy(net_->fault(), fault_.data() + sizeof(Fault), sizeof(Fault)));
  const auto feed = [&](int input, const Tensor& from) {
    if (input < 0) return absl::OkStatus();
    const Tensor to = net_->input(input);
    GYRE_CHECK(to.bytes() == from.bytes() && to.dtype == from.dtype);
    return stream.Copy(to.data, from.data, from.bytes());
  };
  RETURN_IF_ERROR(feed(inputs.image, batch.images));
  return feed(inputs.label, batch.labels);
}

absl::Status StepBuffer::Download(Stream& stream) {
  std::byte* to = metrics_.data();
  for (size_t n = 0; n < net_->plan().spec.nodes.size(); ++n) {
    const Tensor metric = net_->metric(static_cast<int>(n));
    if (!metric) continue;
    RETURN_IF_ERROR(stream.Copy(to, metric.data, metric.bytes()));
    to += metric.bytes();
  }
  return stream.Copy(fault_.data(), net_->fault(), sizeof(Fault));
}

Tensor StepBuffer::metrics() const {
  return {metrics_.data(), Shape({static_cast<int64_t>(metrics_.bytes() / sizeof(double))}),
          DType::kF64};
}

absl::Status StepBuffer::CheckFault(const Batch& batch) const {
  Fault fault;
  std::memcpy(&fault, fault_.data(), sizeof(fault));
  if (fault.word == Fault::kNone) return absl::OkStatus();
  const NetNode& node = net_->plan().spec.nodes[fault.layer()];
  // The only fault there is; a second one gets a switch.
  const Shape& scores = net_->plan().spec.values[node.inputs[0]].shape;
  const int64_t classes = scores[scores.rank() - 1];
  return absl::InvalidArgumentError(absl::StrFormat(
      "sample %d (the first is 0) has label %d, but layer \"%s\" has %d classes and takes labels "
      "from 0 to %d; correct the label, or the outputs of the layer that makes the scores",
      batch.samples[fault.index()], batch.labels.as<int32_t>()[fault.index()], node.config->name(),
      classes, classes - 1));
}

Net::SumStatistic StatisticSummer(CommunicationThread& communication) {
  return [&communication](Stream& stream, absl::string_view label, Tensor statistic) {
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
    RETURN_IF_ERROR(buffer.Upload(stream, scalars, batch, inputs));
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
