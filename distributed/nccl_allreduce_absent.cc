// nccl_allreduce.h in a build without CUDA.

#include "distributed/nccl_allreduce.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Allreduce>> NewNcclAllreduce(Communicator&, Device&) {
  return absl::UnimplementedError("this build has no NCCL (WITH_CUDA=0); use allreduce \"ring\"");
}

size_t NcclDeviceBytes() { return 0; }

}  // namespace gyre
