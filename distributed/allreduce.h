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
  double sum_of_squares = 0;
};

class Allreduce {
 public:
  virtual ~Allreduce() = default;
  // Begins summing host memory of dtype F32 or F64; any length, 0 included, equal on all ranks.
  virtual absl::Status Start(Tensor inout) = 0;
  // Advances; never blocks.  True when done, with *result set.
  virtual absl::StatusOr<bool> Progress(ReduceResult* result) = 0;
};

// The algorithms by name: "ring" and "naive".
// ring: scatter-reduce then allgather, in segments.  2(n-1)/n S bytes a rank.
//   Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms".
// naive: every rank sends to rank 0, which adds in rank order and sends back.  2(n-1) S at the
// root. Errors: InvalidArgument listing the names.  The communicator must outlive the result.
absl::StatusOr<std::unique_ptr<Allreduce>> NewAllreduce(std::string_view algorithm,
                                                        Communicator& communicator);

// Bytes one rank sends to sum `bytes` over `ranks`; for the plan.
double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks);

}  // namespace gyre
