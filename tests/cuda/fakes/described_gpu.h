// described_gpu.h: the real libraries on a machine without a GPU, as far as they go: cuDNN's
// heuristics and plans for a GPU that a text describes, and cuBLASLt's descriptions up to the
// search.  What they accept is what a GPU's would be handed.
#pragma once

#include "absl/status/statusor.h"

namespace gyre {

struct CublasLt;
struct Cudnn;

// cuDNN where every handle is the described GPU, an H100, and nothing can be executed.  Errors:
// Unavailable if cuDNN is not installed.
absl::StatusOr<const Cudnn*> LoadDescribedCudnn();

// cuBLASLt where handles are nothing and a search finds an algorithm of zeros.  Errors: likewise.
absl::StatusOr<const CublasLt*> LoadDescribedCublasLt();

}  // namespace gyre
