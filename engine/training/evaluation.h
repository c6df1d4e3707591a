// evaluation.h: feeding batches to nets, and metrics over a whole data set.
#pragma once

#include <string>
#include <vector>

#include "distributed/communication_thread.h"
#include "engine/data/batch_loader.h"
#include "engine/training/model.h"
#include "engine/training/step/step_buffer.h"

namespace gyre {

// The trainer's training or test set.  Errors: those of OpenDataset, with the field's position.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSamples(const Parsed<TrainerConfig>& trainer,
                                                     bool train);

// What a trainer's file says, as the engine says it.
DType ComputeTypeOf(const TrainerConfig& config);
// Samples a testing batch, over all ranks: no more than there are.
int64_t TestBatchOf(const TrainerConfig& config, int64_t test_samples);

// Errors: InvalidArgument with the position in the net's file, if a net input is fed by nothing or
// the samples' shape is not the input's.
absl::StatusOr<InputMap> MapInputs(const Parsed<NetConfig>& net, const DataConfig& data,
                                   const Dataset& dataset);

// The net's callback that sums a statistic over ranks, through host memory.
Net::SumStatistic StatisticSummer(CommunicationThread& communication);

// Runs the model's testing nets over the whole data set, each rank its share.  All ranks get the
// same metrics.  `progress` (may be null) is told the samples done.
absl::StatusOr<std::vector<Metric>> Evaluate(const Model& model, const Dataset& dataset,
                                             const InputMap& inputs, Device& device, Stream& stream,
                                             CommunicationThread& communication,
                                             const std::function<void(int64_t)>& progress);

}  // namespace gyre
