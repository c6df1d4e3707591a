// cuda_primitives.h: the primitives of a GPU, in every build; without CUDA the function says so.
#pragma once

#include <memory>

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

struct CudaLibraryOptions {
  bool tf32 = false;  // F32 products may round their factors to 10 bits of fraction
};

// The libraries of a device of NewCudaDevice, best first: cuBLASLt and cuDNN (F64 GEMM; F32, F16
// and BF16; deterministic algorithms alone), then the reference.  The device must outlive the
// result.  Errors: Unimplemented in a build without CUDA; Unavailable naming the library that is
// missing or too old, its version, and where it was looked for.
absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CudaLibraryOptions& options);

}  // namespace gyre
