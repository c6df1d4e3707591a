// library.h: the CUDA library on given tables of functions, so that tests can hand it
// fakes; the door for everyone else is cuda.h.  No CUDA header is needed to include this.
#pragma once

#include <memory>

#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// engine/runtime/device/cuda/cuda_libraries.h
struct CublasLt;
struct Cudnn;

// GEMM and convolution by the two.  Handles are made on the calling thread's current GPU, and work
// goes to the streams that operations are run on.  The tables outlive the library and its
// operations.  Errors: those of creating a handle, naming the call.
absl::StatusOr<std::unique_ptr<PrimitiveLibrary>> NewCudaLibrary(const CublasLt& cublaslt,
                                                                 const Cudnn& cudnn,
                                                                 const CudaLibraryOptions& options);

// NewCudaPrimitives on them: the same on the device's GPU, whichever is current, then the
// reference.
absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CublasLt& cublaslt,
                                                              const Cudnn& cudnn,
                                                              const CudaLibraryOptions& options);

}  // namespace gyre
