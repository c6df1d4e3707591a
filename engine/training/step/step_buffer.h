// step_buffer.h: the host's copy of a step's block (NetTrace::step).
#pragma once

#include <optional>
#include <string>

#include "engine/data/batches/batch.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/net/run/net.h"

namespace gyre {

// Pinned host memory for one step.  Upload and Download enqueue one copy each, the same each time,
// so they may be captured.  The net must outlive it.  Used by one thread.
class StepBuffer {
 public:
  static absl::StatusOr<StepBuffer> Create(Device& device, const Net& net);

  // Sets the next Upload.  Precondition: the step that used the buffer before is over.
  void Set(const BatchPosition& position,
           const std::array<UpdateScalars, kMostStepsInFlight>& updates, double loss_scale = 1,
           bool first_batch = true);
  // Enqueues the upload of scalars and pixel values, and of a cleared fault and report.
  absl::Status Upload(Stream& stream) const;
  // Enqueues the download of fault, report, metrics and records.
  absl::Status Download(Stream& stream) const;

  // Results, valid after the stream has passed Download.  F64 {sum, count} for each of MetricsOf.
  Tensor metrics() const;
  Tensor records(int node) const;  // null if the node has none
  GradientReport gradients() const;
  // Errors: InvalidArgument, naming layer, sample of the data set and cause, if a kernel raised a
  // fault.  `batch` is the uploaded one.
  absl::Status CheckFault(const Batch& batch) const;

 private:
  // The value of a sample that the state does not take, as text.  None if the batch does not hold
  // it, or if several differ, as one may be a label to ignore.
  std::optional<std::string> OneBeyond(const StateSpec& state, int value, const Batch& batch,
                                       int64_t sample) const;
  // The address to which Download copies a tensor of the block.
  Tensor Down(Tensor there) const;

  const Net* net_ = nullptr;
  // Pinned: pixel values and block to upload, then the downloaded block with metrics and records.
  Buffer memory_;
  size_t block_at_ = 0;  // offset of the block, after the pixel values
  StepScalars* up() const { return reinterpret_cast<StepScalars*>(memory_.data() + block_at_); }
  StepScalars* down() const { return up() + 1; }
};

}  // namespace gyre
