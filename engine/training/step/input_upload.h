// input_upload.h: batches on their way into a net's inputs, on a stream of their own and ahead of
// need: while a step computes, the next one's batch is copied beside it.
//
// Steps take turns between two lanes; each has device memory for a batch.  The cpu device has one
// memory: there a batch is copied straight into the inputs.  Used by one thread.
#pragma once

#include "engine/runtime/device/buffer.h"
#include "engine/training/data_feed.h"
#include "engine/training/net.h"

namespace gyre {

// Enqueues the copy of a batch straight into the net's inputs.  It must stay until that has run.
absl::Status CopyInputs(Stream& stream, const Net& net, const InputMap& inputs, const Batch& batch);

class InputUpload {
 public:
  static constexpr int kLanes = 2;

  // Device memory that Create takes, for the plan.
  static size_t DeviceBytes(const NetSpec& net);

  // device and net must outlive the result.  Errors: those of allocation.
  static absl::StatusOr<InputUpload> Create(Device& device, const Net& net, const InputMap& inputs);

  // Starts the upload; what comes after on `compute` finds it finished.  The step that used the
  // lane before must be over.  The batch must stay until this one is.
  absl::Status Start(int lane, const Batch& batch, Stream& compute);
  // Enqueues the copy from the lane into the net's inputs, with the same arguments each time.
  absl::Status Deliver(int lane, Stream& compute) const;

 private:
  InputUpload(const Net& net, const InputMap& inputs) : net_(&net), inputs_(inputs) {}

  struct Lane {
    Buffer images, labels;
    std::unique_ptr<Event> uploaded;
  };

  const Net* net_;
  InputMap inputs_;
  std::unique_ptr<Stream> copies_;  // null: straight
  Lane lanes_[kLanes];
};

}  // namespace gyre
