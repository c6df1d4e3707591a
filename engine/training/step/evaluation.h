// evaluation.h: a net's metrics over a whole data set.
#pragma once

#include <functional>
#include <vector>

#include "distributed/process_group.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/metrics/metrics.h"
#include "engine/training/model/model.h"

namespace gyre {

// The net's callback that sums a statistic over ranks, through host memory, in the order of the
// stream: on an asynchronous device the stream waits for the sum, not the caller, who is held up by
// the same statistic's sum before, if that is still under way.  Takes pinned memory for each
// statistic that it meets.  Device and communication must outlive the result.
Net::SumStatistic StatisticSummer(Device& device, ProcessGroup& communication);

// Runs the model's testing nets over the whole data set, each rank its share.  All ranks get the
// same metrics: means in node order, then those of records.  `progress` (may be null) is told the
// samples done.
absl::StatusOr<std::vector<Metric>> Evaluate(const Model& model, const Dataset& dataset,
                                             Device& device, Stream& stream,
                                             ProcessGroup& communication,
                                             const std::function<void(int64_t)>& progress);

}  // namespace gyre
