// evaluation.h: a net's metrics over a whole data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/metrics/metrics.h"
#include "engine/training/model/model.h"
#include "engine/training/step/step_buffer.h"

namespace gyre {

// Returns a callback that sums a statistic over ranks through host memory, in the stream's order.
// On an asynchronous device the stream waits for the sum.  The caller waits at most for the same
// statistic's previous sum.  Pinned memory is allocated for each statistic on first use.  `device`
// and `communication` must outlive the result.
Net::SumStatistic StatisticSummer(Device& device, ProcessGroup& communication);

struct TestResult {
  std::vector<Metric> metrics;           // means in node order and then those of records
  int64_t bad_samples = 0;               // that could not be read, and were zeros
  std::vector<std::string> faults = {};  // of this rank's: a message each
};

// What a test's batch leaves on this rank.
struct TestedBatch {
  const Net& net;
  const StepBuffer& results;
  const Batch& batch;  // this rank's share
  int64_t first = 0;   // position of the first sample over all ranks
};
using TestSink = std::function<absl::Status(const TestedBatch&)>;

// Runs the model's testing nets over the whole data set, each rank over its share, and calls `sink`
// with each batch in turn.  With `samples`: over so many, whole batches of the first net, in place
// of the plan's.  Errors: those of layers and the sink.
absl::Status RunTest(const Model& model, const Dataset& dataset, Device& device, Stream& stream,
                     ProcessGroup& communication, const TestSink& sink,
                     std::optional<int64_t> samples = {});

// Tests, summed over ranks.  All ranks get the same, but for `faults`.  Calls `progress`, unless
// null, with the number of samples done, and `also`, unless null, with each batch.  `samples` is
// RunTest's.
absl::StatusOr<TestResult> Evaluate(const Model& model, const Dataset& dataset, Device& device,
                                    Stream& stream, ProcessGroup& communication,
                                    const std::function<void(int64_t)>& progress,
                                    const TestSink& also = nullptr,
                                    std::optional<int64_t> samples = {});

// Evaluate of a model in training, by the averages of its parameters where it has them.  The values
// are back after it, to the bit, unless it fails where ranks hold shards of them.
// Errors: also those of PutAverages.
absl::StatusOr<TestResult> EvaluateTraining(Model& model, const Dataset& dataset, Device& device,
                                            Stream& stream, ProcessGroup& communication,
                                            const std::function<void(int64_t)>& progress,
                                            std::optional<int64_t> samples = {});

}  // namespace gyre
