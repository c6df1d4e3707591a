// cuda_device.h: the door to NVIDIA GPUs, in every build; without CUDA its functions say so.
//
// Nothing of CUDA is touched before the first call, so a program that links this starts as fast as
// one that does not, and runs where neither driver nor libraries are.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/stop_watch.h"

namespace gyre {

struct CudaOptions {
  int local_rank = 0;         // takes GPU local_rank modulo their number: ranks may share one
  int local_ranks = 1;        // ranks on this host
  size_t capacity_bytes = 0;  // that plans may use; 0: this rank's share of the GPU, less a reserve
};

// Opens a GPU.  Errors: Unimplemented in a build without CUDA; Unavailable saying what is missing
// (driver, its version and the one needed, GPU, its architecture and those built for).
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(const CudaOptions& options);

// One line for logs and benchmark tables: the GPU, its compute capability, the GPUs whose memory it
// reaches without the host, and the CUDA versions of driver and runtime.  Precondition: the device
// is one of NewCudaDevice.
std::string DescribeCudaDevice(const Device& device);

// Nodes (kernels, copies and what a library adds) of a graph that a stream of such a device
// captured; 0 for another's graph.
size_t CudaGraphNodes(const Graph& graph);

// CallOnHost's (host_call.h), for a stream of such a device.
absl::Status CallOnCudaHost(Stream& stream, std::function<absl::Status()> work);

// NewStopWatch's, for a stream of such a device.
absl::StatusOr<std::unique_ptr<StopWatch>> NewCudaStopWatch(Stream& stream);

}  // namespace gyre
