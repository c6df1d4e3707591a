// input_upload.h: batches on their way into a net's inputs, on a stream of their own and ahead of
// need: while a step computes, the next one's batch is copied beside it.
//
// Steps take turns between lanes; each has device memory for a batch, as the plan gives it.  Where
// it gives none, a batch is copied straight into the inputs.  Used by one thread.
#pragma once

#include <memory>
#include <vector>

#include "engine/data/batches/batch.h"
#include "engine/training/net/run/net.h"

namespace gyre {

class InputUpload {
 public:
  // device and net must outlive the result.  Errors: those of streams and events.
  static absl::StatusOr<InputUpload> Create(Device& device, const Net& net);

  // Starts the upload, one copy; what comes after on `compute` finds it finished.  The step that
  // used the lane before must be over.  The batch must stay until this one is.
  absl::Status Start(int lane, const Batch& batch, Stream& compute);
  // Enqueues what brings the lane's batch into the net's inputs, looking pixels up in the net's
  // pixel_values; with the same arguments each time.  net: Create's, or the same one as planned for
  // another iteration.
  absl::Status Deliver(int lane, Stream& compute, const Net& net) const;

 private:
  explicit InputUpload(const Net& net) : net_(&net) {}

  const Net* net_;
  std::unique_ptr<Stream> copies_;                // null: straight
  std::vector<std::unique_ptr<Event>> uploaded_;  // by lane
};

}  // namespace gyre
