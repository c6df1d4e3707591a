// library.h: the CUDA library on given tables of functions, so that tests can pass fakes.  All
// others use cuda_primitives.h.  Including this needs no CUDA header.
#pragma once

#include <memory>

#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// engine/runtime/device/cuda/cuda_libraries.h
struct CublasLt;
struct Cudnn;

// Gemm by cuBLASLt, Conv2d and BatchNorm by cuDNN.  Handles belong to the calling thread's current
// GPU, and work to the stream that an operation runs on.  The tables must outlive the library and
// its operations.  Errors: those of creating a handle, naming the call.
absl::StatusOr<std::unique_ptr<PrimitiveLibrary>> NewCudaLibrary(const CublasLt& cublaslt,
                                                                 const Cudnn& cudnn,
                                                                 const CudaLibraryOptions& options);

// NewCudaPrimitives on given tables, on the device's GPU, whichever is current.
absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CublasLt& cublaslt,
                                                              const Cudnn& cudnn,
                                                              const CudaLibraryOptions& options);

}  // namespace gyre
