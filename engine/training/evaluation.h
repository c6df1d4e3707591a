// evaluation.h: feeding batches to nets, and metrics over a whole data set.
#pragma once

#include <string>
#include <vector>

#include "distributed/communication_thread.h"
#include "engine/data/batch_loader.h"
#include "engine/training/model.h"

namespace gyre {

// The trainer's training or test set.  Errors: those of OpenDataset, with the field's position.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSamples(const Parsed<TrainerConfig>& trainer,
                                                     bool train);

// What a trainer's file says, as the engine says it.
DType ComputeTypeOf(const TrainerConfig& config);
// Samples a testing batch, over all ranks: no more than there are.
int64_t TestBatchOf(const TrainerConfig& config, int64_t test_samples);

// Which net inputs a data set feeds; -1: the net has no such input.
struct InputMap {
  int image = -1, label = -1;
};

// Errors: InvalidArgument with the position in the net's file, if a net input is fed by nothing or
// the samples' shape is not the input's.
absl::StatusOr<InputMap> MapInputs(const Parsed<NetConfig>& net, const DataConfig& data,
                                   const Dataset& dataset);

// The sums behind a mean: over samples, of a loss or a hit count.
struct Metric {
  std::string name;  // the layer's
  bool is_loss = false;
  double weight = 1;  // of a loss in the run's total
  double sum = 0, count = 0;
  double value() const { return count == 0 ? 0 : sum / count; }
};

// The metrics of a net in node order, all zero.
std::vector<Metric> MetricsOf(const NetSpec& net);
// The weighted sum of the losses' values.
double TotalLoss(const std::vector<Metric>& metrics);

// Pinned host memory for one batch's scalars on the way in, metrics and fault on the way out.
class StepBuffer {
 public:
  static absl::StatusOr<StepBuffer> Create(Device& device, const Net& net);

  // Enqueues the upload of scalars, a cleared fault and the batch.
  absl::Status Upload(Stream& stream, const StepScalars& scalars, const Batch& batch,
                      const InputMap& inputs);
  // Enqueues the upload of the scalars alone, with their values as of now.
  absl::Status UploadScalars(Stream& stream, const StepScalars& scalars);
  // Enqueues the download of metrics and fault.
  absl::Status Download(Stream& stream);
  // After the stream has passed Download: F64 {sum, count} for each metric.
  Tensor metrics() const;
  // Errors: InvalidArgument naming layer, sample of the data set and cause, if a kernel raised a
  // fault.  `batch` is the one that was uploaded.
  absl::Status CheckFault(const Batch& batch) const;

 private:
  const Net* net_ = nullptr;
  Buffer scalars_, fault_, metrics_;
};

// The net's callback that sums a statistic over ranks, through host memory.
Net::SumStatistic StatisticSummer(CommunicationThread& communication);

// Runs the model's testing nets over the whole data set, each rank its share.  All ranks get the
// same metrics.  `progress` (may be null) is told the samples done.
absl::StatusOr<std::vector<Metric>> Evaluate(const Model& model, const Dataset& dataset,
                                             const InputMap& inputs, Device& device, Stream& stream,
                                             CommunicationThread& communication,
                                             const std::function<void(int64_t)>& progress);

}  // namespace gyre
