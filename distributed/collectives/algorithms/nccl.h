// nccl.h: sums by NVIDIA's NCCL, directly between GPUs.  Only a build with CUDA has it.
#pragma once

#include <memory>

#include "distributed/collectives/collective.h"
#include "engine/runtime/device/device.h"

namespace gyre {

struct Nccl;  // engine/runtime/device/cuda/cuda_libraries.h

// Sums memory of `device`, one GPU for each rank.  Ranks meet in the first Progress.  NCCL chooses
// the order of additions, the same on all ranks.  Used by one thread at a time, with `device`
// current.  Communicator and device outlive the result.
// Errors: Unimplemented in a build without CUDA, Unavailable if NCCL is missing or too old, those
// of the device.  Start and Progress return NCCL's text for its codes, and Unavailable after the
// communicator's time limit.
absl::StatusOr<std::unique_ptr<Collective>> NewNccl(Communicator& communicator, int tag,
                                                    Device& device);
// Likewise, with a table of NCCL's functions that outlives the result.
absl::StatusOr<std::unique_ptr<Collective>> NewNccl(const Nccl& nccl, Communicator& communicator,
                                                    int tag, Device& device);

// Device memory that it allocates, besides NCCL's own.
size_t NcclDeviceBytes();

}  // namespace gyre
