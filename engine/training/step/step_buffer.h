// step_buffer.h: the host's side of a step's block: scalars, and what pixels stand for, that go in;
// fault, clipping's report and metrics that come out.
#pragma once

#include <optional>

#include "engine/data/batches/batch.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/net/run/net.h"

namespace gyre {

// Pinned host memory for one step.  Upload and Download enqueue one copy each, the same each time,
// so they may be captured.  The net must outlive it; used by one thread.
class StepBuffer {
 public:
  static absl::StatusOr<StepBuffer> Create(Device& device, const Net& net);

  // What Upload will copy.  The step that used the buffer before must be over.
  void Set(const BatchPosition& position,
           const std::array<UpdateScalars, kMostStepsInFlight>& updates, double loss_scale = 1,
           bool first_batch = true);
  // Enqueues the upload of the scalars, what pixels stand for, and a cleared fault and report.
  absl::Status Upload(Stream& stream) const;
  // Enqueues the download of fault, report, metrics and records.
  absl::Status Download(Stream& stream) const;

  // After the stream has passed Download: F64 {sum, count} for each of MetricsOf.
  Tensor metrics() const;
  Tensor records(int node) const;  // of a net's node that has some
  GradientReport gradients() const;
  // Errors: InvalidArgument naming layer, sample of the data set and cause, if a kernel raised a
  // fault.  `batch` is the one that was uploaded.
  absl::Status CheckFault(const Batch& batch) const;

 private:
  // Of a sample's values that come with the batch, the one beyond 0 to `largest`; none where there
  // are others, of which a label may be one that is ignored.
  std::optional<int32_t> OneBeyond(int64_t largest, int value, const Batch& batch,
                                   int64_t sample) const;
  // Of what lies behind the block: where it comes down.
  Tensor Down(Tensor there) const;

  const Net* net_ = nullptr;
  // Pinned: pixel values and block as they go up; behind them the block as it comes down, with
  // metrics and records.
  Buffer memory_;
  size_t block_at_ = 0;  // behind the pixel values
  StepScalars* up() const { return reinterpret_cast<StepScalars*>(memory_.data() + block_at_); }
  StepScalars* down() const { return up() + 1; }
};

}  // namespace gyre
