// data_feed.h: a trainer's data as a net takes it: which data feed which input, and this rank's
// batches of them.
#pragma once

#include <memory>
#include <string>

#include "engine/data/batch_loader.h"
#include "engine/training/run_shape.h"
#include "models/schema/parse.h"

namespace gyre {

// The trainer's training or test set.  Errors: those of OpenDataset, with the field's position.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSamples(const Parsed<TrainerConfig>& trainer,
                                                     bool train);
// Errors: InvalidArgument with the position in the net's file, if a net input is fed by nothing or
// the samples' shape is not the input's.
absl::StatusOr<Feed> FeedOf(const Parsed<NetConfig>& net, const DataConfig& data,
                            const Dataset& dataset);
// The same, as suits a device.
Feed FeedOn(DeviceKind device, Feed feed);

// All that a training run reads.
struct TrainingData {
  std::unique_ptr<Dataset> train, test;  // test null: there is none
  Feed feed;
};
absl::StatusOr<TrainingData> OpenTrainingData(const Parsed<TrainerConfig>& trainer,
                                              const Parsed<NetConfig>& net);

// What tells one data set from another: its sizes, and up to 64 samples spread over it.
std::string DigestOf(const Dataset& dataset);

// What a trainer's file says, as the engine says it; `local` is the planner's to find.
RunShape ShapeOf(const TrainerConfig& config, int rank, int ranks);
// Samples a testing batch, over all ranks: no more than there are.
int64_t TestBatchOf(const TrainerConfig& config, int64_t test_samples);

// Batches of this rank's share of shape.global samples each, from `position` of the order on, as
// `feed` wants them.  dataset and device must outlive them.
absl::StatusOr<std::unique_ptr<BatchLoader>> NewLoader(const Dataset& dataset, bool shuffle,
                                                       const RunShape& shape, const Feed& feed,
                                                       int64_t position, int depth, Device& device);

}  // namespace gyre
