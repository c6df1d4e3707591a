// allreduce.cc: the algorithms by name.

#include "distributed/allreduce.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "distributed/naive_allreduce.h"
#include "distributed/reduction.h"
#include "distributed/ring_allreduce.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Allreduce>> NewAllreduce(std::string_view algorithm,
                                                        Communicator& communicator) {
  if (algorithm == "ring") return std::make_unique<RingAllreduce>(communicator);
  if (algorithm == "naive") return std::make_unique<NaiveAllreduce>(communicator);
  return absl::InvalidArgumentError(absl::StrCat(
      "no allreduce algorithm \"", std::string(algorithm), "\"; there are: ring, naive"));
}

double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks) {
  constexpr double kResultBytes = sizeof(PartialResult);
  if (algorithm == "ring") return 2.0 * (ranks - 1) / ranks * bytes + (ranks - 1) * kResultBytes;
  GYRE_CHECK(algorithm == "naive");
  return (ranks - 1) * (bytes + kResultBytes);
}

absl::Status CheckSummable(const Tensor& tensor) {
  if (IsComputeType(tensor.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot sum ", std::string(DTypeName(tensor.dtype)), "; there are: F32, F64"));
}

}  // namespace gyre
