// allreduce.h: sums tensors of equal length in place over all ranks; all end with the same bits.
//
// The order of additions is a function of (algorithm, element, ranks), never of timing.  One
// operation at a time, on the communication thread; buffers are kept between operations.  An object
// sums either host memory or the memory of one device, and measures the sum where it is.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "distributed/communicator.h"
#include "distributed/reduction.h"
#include "engine/runtime/tensor.h"

namespace gyre {

class Allreduce {
 public:
  virtual ~Allreduce() = default;
  // Begins summing memory of dtype F32 or F64; any length, 0 included, equal on all ranks.  What
  // wrote it has finished.  The memory belongs to the operation until it is done or has failed.
  // Errors: InvalidArgument for another dtype; those of device allocation.
  virtual absl::Status Start(Tensor inout) = 0;
  // Advances; never blocks.  When done, *sum_of_squares of the sum is set, and work enqueued on any
  // stream from now on finds the sum. Errors: the communicator's and the device's; afterwards the
  // object is of no more use.
  virtual absl::StatusOr<Advance> Progress(double* sum_of_squares) = 0;
  // After an error or in place of further progress: blocks until no device works on the memory of
  // the operation.  The object is then of no more use.
  virtual void Abandon() {}
};

// The algorithms by name: "ring", "naive" and "nccl", on host memory.
// ring: scatter-reduce then allgather, in segments.  2(n-1)/n S bytes a rank.
//   Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms".
// naive: every rank sends to rank 0, which adds in rank order and sends back.  2(n-1) S at the
//   root.
// nccl: on host memory the ring.
// Errors: InvalidArgument listing the names.  The communicator must outlive the result.
absl::StatusOr<std::unique_ptr<Allreduce>> NewAllreduce(std::string_view algorithm,
                                                        Communicator& communicator);

// The same on memory of `device`; null for a cpu, whose memory is the host's, and where the
// algorithm or the communicator cannot: then the sum goes through host memory.  Call it and the
// result on the communication thread; the device must outlive the result. ring: the order of
// additions, and so the bits, of the host's; the sum of squares is added up in
//   another order.  Where the communicator moves that device's memory.
// nccl: NVIDIA's library, which chooses the order.  GPUs only, one for each rank.
// Errors: those of CheckAllreduce; Unavailable if NCCL is missing; those of the device.
absl::StatusOr<std::unique_ptr<Allreduce>> NewDeviceAllreduce(std::string_view algorithm,
                                                              Communicator& communicator,
                                                              Device& device);

// InvalidArgument unless `algorithm` is one, and one that can sum the gradients of such a device,
// if there is one; for whoever reads its name, before ranks meet.
absl::Status CheckAllreduce(std::string_view algorithm, std::optional<DeviceKind> device);

// Device memory that NewDeviceAllreduce's object allocates to sum tensors of up to `bytes`; for the
// plan.  NCCL takes more, unplanned, of its own.
// Precondition: `algorithm` is one of NewAllreduce's.
size_t AllreduceDeviceBytes(std::string_view algorithm, size_t bytes, int ranks);

// Bytes sent to sum a tensor of `bytes` over `ranks`, by the rank that sends most; for the plan.
// Where the ranks do not divide the length, a ring's ranks differ by an element: this is the mean.
// Precondition: `algorithm` is one of NewAllreduce's.
double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks);

}  // namespace gyre
