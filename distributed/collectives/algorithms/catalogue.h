// catalogue.h: the algorithms by name, with their properties.  README.md has the table.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "distributed/collectives/choice/selector.h"
#include "distributed/collectives/collective.h"

namespace gyre {

// The names of all algorithms.
std::span<const std::string_view> AllreduceNames();

struct AlgorithmProperties {
  bool has_halves = false;  // reduce-scatter and allgather in host memory
  // Whether reduce-scatter cuts a tensor otherwise than allreduce, so that the last bits of the
  // sums of squares differ.
  bool cuts_halves_elsewhere = false;
  int arena_hosts = 0;  // the most hosts over which it sums a tensor of SharedMemory in place
  // Whether its kernels wait for other ranks on a device.  All ranks then start them in one order,
  // and connect in the first.
  bool meets_on_device = false;
};
// Precondition, here and below: `algorithm` is one of the names.
const AlgorithmProperties& PropertiesOf(std::string_view algorithm);

// How gradients are summed.
struct AllreduceChoice {
  std::string algorithm;  // a name
  // Text that `bench_allreduce --calibrate` writes, for "auto" and bucket sizes, or "".
  std::string calibration = {};
  DType wire = DType::kF32;  // wire type of sums of F32 in order (CheckWire)
  // Program and flags, one in each line, that all ranks must share.  Compared first.
  std::string command = {};
};

// The algorithm on host memory.  "nccl" is the ring there.  Communicator and arenas, which may
// grow, outlive the result.  `selector` chooses for "auto", and is equal on all ranks.
// Errors: InvalidArgument for an unknown name (lists all), or where the algorithm does not work.
absl::StatusOr<std::unique_ptr<Collective>> NewCollective(std::string_view algorithm,
                                                          Communicator& communicator, int tag,
                                                          const SharedArenas& arenas,
                                                          const Selector& selector);

// The algorithm on memory of `device`, which outlives the result.  The communicator's thread calls
// both.  Null for a cpu, or if algorithm or communicator cannot, so that sums use host memory.
//   ring  if the communicator moves that memory; order and bits of the host's, but for squares
//   nccl  GPUs only, one for each rank; NCCL chooses the order
// Errors: those of CheckAllreduce and of the device, and Unavailable if NCCL is missing.
absl::StatusOr<std::unique_ptr<Collective>> NewDeviceCollective(std::string_view algorithm,
                                                                Communicator& communicator, int tag,
                                                                Device& device);

// Checks a name before ranks meet.  Errors: InvalidArgument unless it is an algorithm that can sum
// gradients of this device, if any, and over threads of one process if `threads`.
absl::Status CheckAllreduce(std::string_view algorithm, std::optional<DeviceKind> device,
                            bool threads = false);

// Errors: InvalidArgument unless allreduce of F32 by `algorithm` can have this wire type, F32, F16
// or BF16 (Collective::CarryAs).
absl::Status CheckWire(std::string_view algorithm, DType wire);

// Errors: InvalidArgument, naming others, unless the algorithm has halves.
absl::Status CheckHalves(std::string_view algorithm);

// Device memory that NewDeviceCollective's result allocates for tensors of up to `bytes`.
size_t AllreduceDeviceBytes(std::string_view algorithm, size_t bytes, int ranks);

// Bytes that the rank that sends most sends for a tensor of `bytes`, for the plan.  It is the mean
// over ranks that differ by an element, for hosts of equal size.  For mpi the least possible, for
// ring that of messages.  Precondition: not "auto", but its choice.
double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks, int hosts);

}  // namespace gyre
