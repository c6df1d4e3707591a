// data_feed.h: matches a trainer's data to a net's inputs, and loads this rank's batches.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/batch_loader.h"
#include "engine/training/feed/data_check.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/run_shape.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Shared by ranks that share data sets, so that each data set is checked once.
struct DataLooks {
  std::mutex mutex;
  std::map<std::string, absl::StatusOr<DataLook>> looks;  // CheckData's, by its `what`
};

// All that a run reads, and how it reaches the net.  A copy shares the data sets.
struct RunData {
  std::shared_ptr<const Dataset> train, test;  // null: absent or not wanted
  Feed feed;
  Fit fit = {};
  bool assumed = false;                 // made by AssumeData
  std::vector<std::string> notes = {};  // for people: how inputs are normalized
  std::shared_ptr<DataLooks> looks = std::make_shared<DataLooks>();
  std::shared_ptr<DataMemory> memory = {};  // of decoded pictures, or null
  std::shared_ptr<const void> files = {};   // keeps those that were sent, while samples are read
};
// Opens data.test and, if the run trains, data.train.  `fit` is that of the weights, if any.  What
// it lacks is made of the samples of data.train.  Decoded pictures are kept in `memory_bytes`.
// Errors: those of OpenDataset and FeedOf, with the position in the trainer's file, such as
// NotFound.  InvalidArgument for more contiguous rows than there are sequences.
absl::StatusOr<RunData> OpenData(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                                 bool train, const Fit& fit = {}, const PathOf& path_of = {},
                                 size_t memory_bytes = 0);

// Data for a plan without the files.  The net's inputs give shapes and types, the trainer the
// number of samples.  All values are 0.  Pictures of `idx`, `images` and `records` are bytes, other
// real inputs F32.  Errors: those of FeedOf.
absl::StatusOr<RunData> AssumeData(const Parsed<TrainerConfig>& trainer,
                                   const Parsed<NetConfig>& net);

// Whether samples are decoded as they are read, such as pictures.  Not of null.
bool DecodesSamples(const Dataset* dataset);
// Sets the threads that decode samples: `wanted` of them, or, if that is 0, `threads` where samples
// are decoded as they are read, and else one.
void SetWorkers(int wanted, int threads, RunData& data);

// Samples of a step, over all ranks and accumulated batches.
int64_t SamplesAStep(const TrainerConfig& config);
// Positions of an epoch and of a test.  There is one for each sample, but contiguous rows all have
// one length.
int64_t TrainSamplesOf(const TrainerConfig& config, const Dataset& dataset);
int64_t TestSamplesOf(const TrainerConfig& config, const Dataset& dataset);
// Text for people: notes of the data and of the data sets, the classes to train on, and samples
// left out or added as padding by rows of one length.
std::vector<std::string> LeftOut(const TrainerConfig& config, const RunData& data);
// Samples of a test batch, over all ranks.  At most the samples, or the sequences if in rows.
int64_t TestBatchOf(const TrainerConfig& config, const Dataset& dataset);

// Loads this rank's share of batches of shape.global samples, from `position` of the order on.
// Samples are augmented if `train`.  dataset and device must outlive the loader.
absl::StatusOr<std::unique_ptr<BatchLoader>> NewLoader(const Dataset& dataset, bool train,
                                                       const RunShape& shape, const Feed& feed,
                                                       int64_t position, int depth, Device& device);

}  // namespace gyre
