// cuda.h: the door to NVIDIA GPUs, in every build; without CUDA its functions say so.
//
// Nothing of CUDA is touched before the first call, so a program that links this starts as fast as
// one that does not, and runs where neither driver nor libraries are.
#pragma once

#include <memory>
#include <string>

#include "engine/runtime/device.h"
#include "engine/runtime/primitives.h"

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

struct CudaLibraryOptions {
  bool tf32 = false;  // F32 products may round their factors to 10 bits of fraction
};

// The libraries of a device of NewCudaDevice, best first: cuBLASLt and cuDNN (F64 GEMM; F32, F16
// and BF16; deterministic algorithms alone), then the kernel library.  The device must outlive the
// result.  Errors: Unavailable naming the library that is missing or too old, its version, and
// where it was looked for.
absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CudaLibraryOptions& options);

}  // namespace gyre
