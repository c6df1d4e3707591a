// sample_statistics.h: mean and deviation of samples, for normalization.  Pure.  Any thread.
//
// Sums of bytes are exact.  Sums of reals and of their squares keep 106 bits, so that neither the
// number of values nor a mean far from 0 costs digits.  The order of samples is fixed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"

namespace gyre {

// By channel, which is an index of the last axis.  A sample of one value has one channel.
struct SampleStatistics {
  std::vector<double> mean;     // 0 without values
  std::vector<double> std;      // sqrt(mean of (x - mean)^2).  0 if all values are equal
  std::vector<int64_t> values;  // counted
  // Whether all are 0 or 1, of reals, as where they say which word a table's row has.
  std::vector<bool> zero_one;
};

// Of `samples` samples of arrays()[array], evenly spread over the data set: sample i * size /
// samples is the i-th.  The array is of bytes, F32 or F64.  A byte counts as byte / 255.  Rows of
// padding do not count: of [rows, ..., channels] beyond dataset.lengths(). Precondition: 0 <=
// samples <= dataset.size(). Errors: those of Dataset::Read, and InvalidArgument with file and
// sample for a value that is not finite or whose square is beyond F64.  `skip_faulty` leaves out
// such samples, and those that cannot be read, unless all are faulty.
absl::StatusOr<SampleStatistics> StatisticsOf(const Dataset& dataset, size_t array, int64_t samples,
                                              bool skip_faulty = false);

}  // namespace gyre
