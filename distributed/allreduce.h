// allreduce.h: sums tensors of equal length in place over all ranks; all end with the same bits.
//
// The order of additions is a function of (algorithm, element, ranks), never of timing.  One
// operation at a time, on the communication thread; buffers are kept between operations.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "distributed/communicator.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// Of the summed tensor, equal on all ranks: what the update gate needs.
struct ReduceResult {
  bool finite = true;
  double sum_of_squares = 0;  // infinite if squares of F64 overflow, even where finite is true
};

class Allreduce {
 public:
  virtual ~Allreduce() = default;
  // Begins summing host memory of dtype F32 or F64; any length, 0 included, equal on all ranks.
  // The memory belongs to the operation until it is done or has failed.
  // Errors: InvalidArgument for another dtype.
  virtual absl::Status Start(Tensor inout) = 0;
  // Advances; never blocks.  When done, *result is set.
  // Errors: the communicator's; afterwards the object is of no more use.
  virtual absl::StatusOr<Advance> Progress(ReduceResult* result) = 0;
};

// The algorithms by name: "ring" and "naive".
// ring: scatter-reduce then allgather, in segments.  2(n-1)/n S bytes a rank.
//   Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms".
// naive: every rank sends to rank 0, which adds in rank order and sends back.  2(n-1) S at the
//   root.
// Errors: InvalidArgument listing the names.  The communicator must outlive the result.
absl::StatusOr<std::unique_ptr<Allreduce>> NewAllreduce(std::string_view algorithm,
                                                        Communicator& communicator);

// Bytes sent to sum a tensor of `bytes` over `ranks`, by the rank that sends most; for the plan.
// Where the ranks do not divide the length, a ring's ranks differ by an element: this is the mean.
// Precondition: `algorithm` is one of NewAllreduce's.
double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks);

// For implementations: InvalidArgument unless the tensor's dtype can be summed.
absl::Status CheckSummable(const Tensor& tensor);

}  // namespace gyre
