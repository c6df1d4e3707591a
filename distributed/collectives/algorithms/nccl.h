// nccl.h: sums by NCCL, NVIDIA's library, straight between GPUs; in every build, but only
// one with CUDA has it.
#pragma once

#include <memory>

#include "distributed/collectives/collective.h"
#include "engine/runtime/device/device.h"

namespace gyre {

struct Nccl;  // of engine/runtime/device/cuda/cuda_libraries.h

// Sums the memory of `device`, one GPU for each rank.  Ranks meet in the first Progress.  NCCL
// chooses the order of additions, the same on all ranks.  Start's and Progress's errors are NCCL's
// words for its codes, and Unavailable after the communicator's time limit.  Used by one
// thread at a time, whose GPU is that of `device`.  communicator and device must outlive the
// result. Errors: Unimplemented in a build without CUDA; Unavailable if NCCL is missing or too old;
// those of the device.
absl::StatusOr<std::unique_ptr<Collective>> NewNccl(Communicator& communicator, int tag,
                                                    Device& device);
// With another table of NCCL's functions, which must outlive the result.
absl::StatusOr<std::unique_ptr<Collective>> NewNccl(const Nccl& nccl, Communicator& communicator,
                                                    int tag, Device& device);

// Device memory that it takes besides NCCL's own.
size_t NcclDeviceBytes();

}  // namespace gyre
