// in_data_order.h: hands on samples in the data's order, which contiguous rows of a batch do not
// have.  Keeps those in memory that come early.  Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/training/predict/predict.h"

namespace gyre {

class InDataOrder {
 public:
  // Of samples 0 to `samples` - 1.  Others are padding, and are left out.
  InDataOrder(int64_t samples, PredictionSink sink) : samples_(samples), sink_(std::move(sink)) {}

  // Errors: the sink's.
  absl::Status Add(int64_t sample, std::span<const Tensor> values);
  // After the last.  Samples that have not come are passed over.
  absl::Status Finish();

 private:
  struct EarlySample {
    std::vector<Shape> shapes;
    std::vector<std::vector<double>> values;
  };
  absl::Status HandOn(int64_t sample, EarlySample& early);

  const int64_t samples_;
  const PredictionSink sink_;
  int64_t next_ = 0;
  std::map<int64_t, EarlySample> early_;
};

}  // namespace gyre
