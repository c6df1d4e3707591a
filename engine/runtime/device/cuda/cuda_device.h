// cuda_device.h: opens NVIDIA GPUs, in every build.  Without CUDA its functions return an error.
//
// Nothing touches CUDA before the first call.  A program that links this starts as fast as others,
// and runs without driver and libraries.
#pragma once

#include <memory>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/stop_watch.h"

namespace gyre {

struct CudaOptions {
  int local_rank = 0;         // uses GPU local_rank modulo their number, so ranks may share a GPU
  int local_ranks = 1;        // ranks on this host
  size_t capacity_bytes = 0;  // for plans, 0: this rank's share of the GPU, less a reserve
};

// Opens a GPU.  Errors: Unimplemented in a build without CUDA.  Unavailable if the driver or the
// GPU is missing, too old or unusable, with the versions or architectures found and needed.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(const CudaOptions& options);

// NewStopWatch for a stream of such a device.
absl::StatusOr<std::unique_ptr<StopWatch>> NewCudaStopWatch(Stream& stream);

}  // namespace gyre
