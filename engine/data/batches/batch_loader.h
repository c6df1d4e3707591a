// batch_loader.h: decodes batches ahead, by worker threads, into pinned host memory, so that
// reading overlaps training.  A batch's content depends on its position alone, never on the number
// of workers or on timing.  Create, Next, Release and the destructor belong to one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/data/batches/batch.h"
#include "engine/data/batches/batch_loader_options.h"
#include "engine/data/batches/sample_order.h"
#include "engine/data/sets/dataset.h"
#include "engine/runtime/device/device.h"

namespace gyre {

// Seconds since the loader was made.
struct LoaderTimes {
  double next_waited = 0;     // for decoding, in Next
  double workers_worked = 0;  // over all workers
  double workers_waited = 0;  // for a batch to be released, over all workers
};

class BatchLoader {
 public:
  // Allocates pinned memory for `depth` batches (BatchBytes), and never more.  `dataset` and
  // `device` must outlive the loader.  Errors: those of Device::Allocate, and InvalidArgument for
  // options out of range, types that no Decoder makes, or samples too large to address.
  static absl::StatusOr<std::unique_ptr<BatchLoader>> Create(const Dataset& dataset,
                                                             SampleOrder order, Device& device,
                                                             const BatchLoaderOptions& options);
  ~BatchLoader();  // joins the workers, never hangs

  // Blocks until the next batch is decoded.  It is valid until Release, which must follow its copy.
  // A sample that cannot be read or decoded is zeros, and one of the batch's faults.
  // Precondition: at most depth - 1 batches are held.
  Batch Next();
  void Release(const Batch& batch);
  LoaderTimes times() const;

 private:
  class Impl;
  explicit BatchLoader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyre
