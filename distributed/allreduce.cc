// allreduce.cc: the algorithms by name.

#include "distributed/allreduce.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "distributed/naive_allreduce.h"
#include "distributed/nccl_allreduce.h"
#include "distributed/reduction.h"
#include "distributed/ring_allreduce.h"
#include "distributed/ring_arithmetic.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

bool IsOneOf(std::string_view algorithm) {
  return algorithm == "ring" || algorithm == "naive" || algorithm == "nccl";
}

absl::Status NoSuch(std::string_view algorithm) {
  return absl::InvalidArgumentError(absl::StrCat(
      "no allreduce algorithm \"", std::string(algorithm), "\"; there are: ring, naive, nccl"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Allreduce>> NewAllreduce(std::string_view algorithm,
                                                        Communicator& communicator) {
  if (!IsOneOf(algorithm)) return NoSuch(algorithm);
  if (algorithm == "naive") return std::make_unique<NaiveAllreduce>(communicator);
  return std::make_unique<RingAllreduce>(communicator, NewHostArithmetic());
}

absl::StatusOr<std::unique_ptr<Allreduce>> NewDeviceAllreduce(std::string_view algorithm,
                                                              Communicator& communicator,
                                                              Device& device) {
  RETURN_IF_ERROR(CheckAllreduce(algorithm, device.kind()));
  if (device.kind() == DeviceKind::kCpu) return nullptr;
  if (algorithm == "nccl") return NewNcclAllreduce(communicator, device);
  if (algorithm != "ring" || !communicator.moves_device_memory(device.kind())) return nullptr;
  ASSIGN_OR_RETURN(auto arithmetic, NewDeviceArithmetic(device));
  return std::make_unique<RingAllreduce>(communicator, std::move(arithmetic));
}

absl::Status CheckAllreduce(std::string_view algorithm, std::optional<DeviceKind> device) {
  if (!IsOneOf(algorithm)) return NoSuch(algorithm);
  if (algorithm == "nccl" && device && *device != DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("allreduce \"nccl\" sums the memory of GPUs, and this is --device=",
                     std::string(DeviceKindName(*device)), "; use \"ring\", or --device=cuda"));
  }
  return absl::OkStatus();
}

size_t AllreduceDeviceBytes(std::string_view algorithm, size_t bytes, int ranks) {
  GYRE_CHECK(IsOneOf(algorithm));
  if (algorithm == "nccl") return NcclDeviceBytes();
  if (algorithm == "naive") return 0;
  return DeviceArithmeticBytes(RingAllreduce::SlotBytes(kDeviceSegmentBytes, bytes, ranks));
}

double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks) {
  constexpr double kResultBytes = sizeof(double);
  GYRE_CHECK(IsOneOf(algorithm));
  if (algorithm == "ring") return 2.0 * (ranks - 1) / ranks * bytes + (ranks - 1) * kResultBytes;
  if (algorithm == "nccl") return 2.0 * (ranks - 1) / ranks * bytes;
  return (ranks - 1) * (bytes + kResultBytes);
}

}  // namespace gyre
