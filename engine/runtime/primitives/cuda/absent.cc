// cuda_primitives.h in a build without CUDA, which cannot have opened a GPU.

#include "engine/runtime/check.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device&, const CudaLibraryOptions&) {
  return absl::UnimplementedError("this build has no CUDA");
}

}  // namespace gyre
