// step_buffer.h: what a step takes in and gives out beside its batch: scalars, metrics, a fault,
// the gate's report.
#pragma once

#include "engine/training/metrics.h"
#include "engine/training/step/input_upload.h"
#include "engine/training/step/update_gate.h"

namespace gyre {

// Pinned host memory for one step.  Upload and Download enqueue the same copies each time, so they
// may be captured.  The net must outlive it; used by one thread.
class StepBuffer {
 public:
  // Device memory that Create takes, for the plan.
  static constexpr size_t kDeviceBytes = sizeof(GateReport);

  static absl::StatusOr<StepBuffer> Create(Device& device, const Net& net);

  // What Upload will copy.  The step that used the buffer before must be over.
  void SetScalars(const StepScalars& scalars);
  // Enqueues the upload of the scalars, and of a cleared fault and report.
  absl::Status Upload(Stream& stream) const;
  // Device memory, for OpenGate.
  GateReport* gate_report() const;
  // Enqueues the download of metrics, fault and report.
  absl::Status Download(Stream& stream) const;

  // After the stream has passed Download: F64 {sum, count} for each of MetricsOf.
  Tensor metrics() const;
  GateReport gate() const;
  // Errors: InvalidArgument naming layer, sample of the data set and cause, if a kernel raised a
  // fault.  `batch` is the one that was uploaded.
  absl::Status CheckFault(const Batch& batch) const;

 private:
  const Net* net_ = nullptr;
  // Pinned: {scalars, fault, report} to go up; {fault, report} and metrics that came down.
  Buffer up_, down_, metrics_;
  Buffer report_;  // device memory
};

}  // namespace gyre
