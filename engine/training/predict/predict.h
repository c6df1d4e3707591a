// predict.h: what a trained net says of each sample of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "distributed/process_group.h"
#include "engine/training/parameter.h"
#include "engine/training/predict/prediction_net.h"
#include "engine/training/step/evaluation.h"

namespace gyre {

// The node that records a prediction of CutToPredict or AddClassShares, which changed the net's
// text.
int RecorderOf(const NetSpec& net, const Prediction& prediction);

// Called for each sample on rank 0 alone.  `values` are F64 [places, columns], a tensor for each
// prediction in its unit, and live until it returns.  They are empty for a sample that could not be
// read.
using PredictionSink = std::function<absl::Status(int64_t sample, std::span<const Tensor> values)>;

// What gives RunTest's batches to `sink`.  `predictions` are of CutToPredict or AddClassShares,
// which changed the net's text.  Ranks share each batch, and all of them call it.  The arguments
// outlive the result.  Errors: those of communication, and the sink's.
TestSink PredictionsTo(std::span<const Prediction> predictions, ProcessGroup& communication,
                       const PredictionSink& sink);

// Hands on samples in the data's order, which contiguous rows of a batch do not have.  Keeps those
// in memory that come early.  Used by one thread.
class InDataOrder {
 public:
  // Of samples 0 to `samples` - 1.  Others are padding, and are left out.
  InDataOrder(int64_t samples, PredictionSink sink) : samples_(samples), sink_(std::move(sink)) {}

  // Errors: the sink's.
  absl::Status Add(int64_t sample, std::span<const Tensor> values);
  // After the last.  Samples that have not come are passed over.
  absl::Status Finish();

 private:
  absl::Status HandOnFirst();  // of early_

  const int64_t samples_;
  const PredictionSink sink_;
  int64_t next_ = 0;
  std::map<int64_t, HostTensors> early_;
};

}  // namespace gyre
