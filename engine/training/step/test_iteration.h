// test_iteration.h: one batch through a testing net, from upload to results.  Used by one thread.
#pragma once

#include "engine/data/batches/batch.h"
#include "engine/training/net/run/net.h"
#include "engine/training/step/input_upload.h"
#include "engine/training/step/step_buffer.h"
#include "memory/pager/pager.h"

namespace gyre {

// Of one rank, whose statistics are the sums.
inline absl::Status LeaveStatistic(Stream&, absl::string_view, const Tensor&) {
  return absl::OkStatus();
}

class TestIteration {
 public:
  // All arguments outlive the result.  `pager` is the net's, or null.  Errors: those of allocation.
  static absl::StatusOr<TestIteration> Create(Device& device, const Net& net, Pager* pager);

  // Runs the net over the batch, of its BatchArrays, and waits.  `sum` is Net::Forward's.
  // Errors: those of layers and of `sum`, and InvalidArgument for bad data, naming layer and
  // sample.
  absl::Status Run(const Batch& batch, Stream& stream,
                   const Net::SumStatistic& sum = LeaveStatistic);
  // What the last Run left.
  const StepBuffer& results() const { return buffer_; }

 private:
  TestIteration(const Net& net, Pager* pager, StepBuffer buffer, InputUpload upload)
      : net_(&net), pager_(pager), buffer_(std::move(buffer)), upload_(std::move(upload)) {}

  const Net* net_;
  Pager* pager_;
  StepBuffer buffer_;
  InputUpload upload_;
};

}  // namespace gyre
