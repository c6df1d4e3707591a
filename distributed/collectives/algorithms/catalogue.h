// catalogue.h: the algorithms by name; README.md has their table.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "distributed/collectives/choice/selector.h"
#include "distributed/collectives/collective.h"

namespace gyre {

// The algorithms by name, on host memory; README.md has the table.
std::span<const std::string_view> AllreduceNames();

// What sums gradients, and how.
struct AllreduceChoice {
  std::string algorithm;  // one of the names
  // The text of what `bench_allreduce --calibrate` has written, for "auto" and for buckets; "": a
  // model decides.
  std::string calibration = {};
  DType wire = DType::kF32;  // as what sums of F32 in order travel (CheckWire)
  // The program and the flags that all ranks must have alike, a line each; compared first.
  std::string command = {};
};

// "nccl" is the ring on host memory.  arenas: may grow; must outlive the result, as the
// communicator must.  selector: what "auto" chooses; the same on all ranks.  Errors:
// InvalidArgument listing the names, or saying where the algorithm does not work.
absl::StatusOr<std::unique_ptr<Collective>> NewCollective(std::string_view algorithm,
                                                          Communicator& communicator, int tag,
                                                          const SharedArenas& arenas,
                                                          const Selector& selector);
// The same with the selector's model.
absl::StatusOr<std::unique_ptr<Collective>> NewCollective(std::string_view algorithm,
                                                          Communicator& communicator, int tag,
                                                          const SharedArenas& arenas);

// The same on memory of `device`; null for a cpu, whose memory is the host's, and where the
// algorithm or the communicator cannot: then the sum goes through host memory.  Call it and the
// result where the communicator is called; the device must outlive the result.
// ring: the order of additions, and so the bits, of the host's; the sum of squares is added up in
//   another order.  Where the communicator moves that device's memory.
// nccl: NVIDIA's library, which chooses the order.  GPUs only, one for each rank.
// Errors: those of CheckAllreduce; Unavailable if NCCL is missing; those of the device.
absl::StatusOr<std::unique_ptr<Collective>> NewDeviceCollective(std::string_view algorithm,
                                                                Communicator& communicator, int tag,
                                                                Device& device);

// InvalidArgument unless `algorithm` is one, and one that can sum the gradients of such a device,
// if there is one, and of such ranks; for whoever reads its name, before ranks meet.
// threads: the ranks are threads of one process.
absl::Status CheckAllreduce(std::string_view algorithm, std::optional<DeviceKind> device,
                            bool threads = false);

// InvalidArgument unless whole sums of F32 by `algorithm` can travel as `wire`
// (Collective::CarryAs): F32, or a half.
absl::Status CheckWire(std::string_view algorithm, DType wire);

// InvalidArgument, naming those that have, unless `algorithm` has the halves of the sum,
// reduce-scatter and allgather, of host memory.
absl::Status CheckHalves(std::string_view algorithm);

// Device memory that NewDeviceCollective's object allocates to sum tensors of up to `bytes`.
// Precondition: `algorithm` is one of the names.
size_t AllreduceDeviceBytes(std::string_view algorithm, size_t bytes, int ranks);

// True if, over `hosts`, it sums a tensor that lies in SharedMemory there.
// Precondition: `algorithm` is one of the names.
bool SumsInArenas(std::string_view algorithm, int hosts);

// True if the halves of a sum cut it elsewhere than the whole sum does: the sums of squares differ
// in their last bits.  Precondition: `algorithm` is one of the names.
bool CutsHalvesElsewhere(std::string_view algorithm);

// Bytes sent to sum a tensor of `bytes` over `ranks`, by the rank that sends most; for the plan.
// Where the ranks do not divide the length, ranks differ by an element: this is the mean; hosts are
// taken to have equally many.  Of what MPI does, the least that it can; of the ring, by messages.
// Not of "auto", but of what it chooses.
// Precondition: `algorithm` is one of the names.
double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks, int hosts);

}  // namespace gyre
