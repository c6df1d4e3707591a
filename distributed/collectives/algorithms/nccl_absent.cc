// nccl.h in a build without CUDA.

#include "distributed/collectives/algorithms/nccl.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Collective>> NewNccl(Communicator&, int, Device&) {
  return absl::UnimplementedError("this build has no NCCL (WITH_CUDA=0); use allreduce \"ring\"");
}

size_t NcclDeviceBytes() { return 0; }

}  // namespace gyre
