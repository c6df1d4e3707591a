// gradient_sync.h: carries buckets of gradients from device memory to the communication thread and
// back, under the rest of backward.  Where device memory is not host memory, buckets are staged
// through pinned buffers on a stream of their own.  Used by the thread that made it.
#pragma once

#include <memory>
#include <vector>

#include "distributed/communication_thread.h"
#include "engine/runtime/buffer.h"

namespace gyre {

class GradientSync {
 public:
  // buckets: device memory.  device and communication outlive the result.
  // Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(Device& device,
                                                              CommunicationThread& communication,
                                                              std::vector<Tensor> buckets);

  // Begins summing a bucket over all ranks once what `compute` holds so far has run.
  absl::Status Start(int bucket, Stream& compute);
  // Blocks until the sum is there; work enqueued on `compute` afterwards sees it.
  absl::StatusOr<ReduceResult> Finish(int bucket, Stream& compute);

  int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  struct Bucket {
    Tensor device, host;  // the same where device memory is host memory
    Buffer staging = {};
    std::unique_ptr<Event> computed = nullptr,
                           ready = nullptr;  // gradients assigned; host copy there
    CommunicationThread::Ticket ticket = 0;
  };
  explicit GradientSync(CommunicationThread& communication) : communication_(communication) {}

  CommunicationThread& communication_;
  bool staged_ = false;
  std::unique_ptr<Stream> copies_;
  std::vector<Bucket> buckets_;
};

}  // namespace gyre
