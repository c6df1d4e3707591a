// data_feed.h: a trainer's data as a net takes it: which arrays feed which input, and this rank's
// batches of them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/batch_loader.h"
#include "engine/training/run_shape.h"
#include "models/schema/parse.h"

namespace gyre {

// Of ranks that share data sets, which are looked at once.
struct DataLooks {
  std::mutex mutex;
  std::map<std::string, absl::StatusOr<std::string>> digests;  // CheckData's, by what they are of
};

// All that a run reads, and how it reaches the net.  A copy shares the data sets.
struct RunData {
  std::shared_ptr<const Dataset> train, test;  // null: there is none, or it is not wanted
  Feed feed;
  Fit fit = {};
  bool assumed = false;  // there are none: these are AssumeData's
  std::shared_ptr<DataLooks> looks = std::make_shared<DataLooks>();
};
// Opens data.test and, if the run trains, data.train.  fit: that of the weights, if they have one.
// Errors: those of OpenDataset and FeedOf, with the position in the trainer's file, NotFound for
// what is not there; InvalidArgument for more rows than there are sequences to be gone through in
// them.
absl::StatusOr<RunData> OpenData(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                                 bool train, const Fit& fit = {}, const PathOf& path_of = {});

// Either data set may be null.
// Errors: InvalidArgument with the position in the net's or the trainer's file, if a net input is
// fed by nothing, an array of `arrays` feeds no input, shape or type is not the input's, or
// normalization or augmentation do not fit it.
absl::StatusOr<Feed> FeedOf(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                            const Dataset* train, const Dataset* test);
// Of a net that takes made-up data: each input by its name, those that are real by bytes,
// which stand for -1 to 1.
Feed FeedOfBytes(const NetConfig& net);
// The same, as suits a device.
Feed FeedOn(DeviceKind device, Feed feed);

// Whether some of its samples are filled up to the others' length.
bool IsPadded(const Dataset& dataset);

// As checkpoints of earlier releases tell one data set from another: by its sizes, and up to 64
// samples spread over it, as values.  Those of today: CheckData.
std::string SampledDigestOf(const Dataset& dataset, const Feed& feed);

// Over all ranks: a batch, or as many as its gradients are accumulated over.
int64_t SamplesAStep(const TrainerConfig& config);
// What a trainer's file says, as the engine says it; `local` is the planner's to find.
RunShape ShapeOf(const TrainerConfig& config, const NetConfig& net, int rank, int ranks);
// What a layer that says nothing is stored in.
DType PrecisionOf(const TrainerConfig& config, const NetConfig& net);
DType DTypeOf(DistributedConfig::Wire wire);
// Positions of an epoch, and of a test: as many as there are samples, but where they come in
// contiguous rows, which have one length.
int64_t TrainSamplesOf(const TrainerConfig& config, const Dataset& dataset);
int64_t TestSamplesOf(const TrainerConfig& config, const Dataset& dataset);
// For people: a sentence for each data set of which samples are left out, or rows end with blank
// ones, and its notes.
std::vector<std::string> LeftOut(const TrainerConfig& config, const RunData& data);
// Samples a testing batch, over all ranks: no more than there are, nor than there are sequences to
// be gone through.
int64_t TestBatchOf(const TrainerConfig& config, const Dataset& dataset);

// Batches of this rank's share of shape.global samples each, from `position` of the order on, as
// `feed` wants them; augmented to train.  dataset and device must outlive them.
absl::StatusOr<std::unique_ptr<BatchLoader>> NewLoader(const Dataset& dataset, bool train,
                                                       const RunShape& shape, const Feed& feed,
                                                       int64_t position, int depth, Device& device);

}  // namespace gyre
