// cuda_primitives.h: the primitives of a GPU, in every build.  One without CUDA returns an error.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// One operation, or one pass of a convolution, with the candidates that the libraries would run for
// it.  The heuristics' favourite is first, with a ReLU that hands NaNs on.  All are deterministic
// and keep the bounds on errors.
struct CudaTrial {
  // Numbered as x, weights, bias, y of a convolution, or a, b, bias, c of a product.
  struct Operand {
    int number = 0;
    size_t bytes = 0;
  };
  struct TrialCandidate {
    std::string choice;  // as choices() will have it
    size_t scratch_bytes = 0;
    // Enqueues on stream.  `operands` are in the order of CudaTrial's.
    std::function<absl::Status(Stream& stream, std::span<void* const> operands, void* scratch)> run;
  };
  std::string what;
  DType dtype = DType::kF32;
  bool relu = false;                            // the result is max(x, 0); candidates may drop NaNs
  std::vector<Operand> operands = {};           // the last is assigned
  std::vector<TrialCandidate> candidates = {};  // one or more
};

// Chooses among candidates.  It is asked once for each operation and pass that is prepared, in the
// same order on every rank, whatever its share of the batch.
class CudaSelector {
 public:
  virtual ~CudaSelector() = default;
  // The number of candidates to choose from, at least 1.
  virtual size_t most_candidates() const = 0;
  // Returns an index into trial.candidates.  Errors end Prepare.
  virtual absl::StatusOr<size_t> Select(const CudaTrial& trial) = 0;
};

struct CudaLibraryOptions {
  bool tf32 = false;  // F32 products may round their factors to 10 bits of fraction
  // Must outlive the library.  null takes the heuristics' favourite.
  CudaSelector* selector = nullptr;
};

// Returns the libraries of a device of NewCudaDevice, best first.  cuBLASLt and cuDNN take F64
// GEMM, and F32, F16 and BF16, with deterministic algorithms alone.  The reference is last.  The
// device must outlive the result.  Errors: Unimplemented in a build without CUDA.  Unavailable
// naming a library that is missing or too old, its version, and the folders searched.
absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CudaLibraryOptions& options);

}  // namespace gyre
