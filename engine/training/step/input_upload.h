// input_upload.h: copies batches to a net's inputs.  Used by one thread.  A stream of its own
// copies the next batch while an iteration computes.  Iterations alternate between lanes, each with
// planned device memory.  If the plan gives none, a batch is copied straight into the inputs.
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

  // Starts the upload.  Later work on `compute` finds it complete.  The batch must stay until its
  // iteration is over.  Precondition: the iteration that used the lane before is over.
  absl::Status Start(int lane, const Batch& batch, Stream& compute);
  // Enqueues the copy of the lane's batch to the net's inputs, looking up pixels.  The same each
  // time.  `net` is Create's, or the same net as planned for another kind of iteration.
  absl::Status Deliver(int lane, Stream& compute, const Net& net) const;

 private:
  explicit InputUpload(const Net& net)
      : net_(&net),
        inputs_(net.plan().spec.train && !net.plan().spec.shape.works()
                    ? 0
                    : static_cast<int>(net.plan().feed.inputs.size())) {}

  const Net* net_;
  int inputs_;                                    // 0 on a rank that only owns
  std::unique_ptr<Stream> copies_;                // null: batches are copied straight to the inputs
  std::vector<std::unique_ptr<Event>> uploaded_;  // by lane
};

}  // namespace gyre
