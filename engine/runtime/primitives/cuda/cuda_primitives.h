// cuda_primitives.h: the primitives of a GPU, in every build; without CUDA the function says so.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// One operation, or one pass of a convolution, and the candidates: what the libraries would run for
// it, the heuristics' favourite first.  Every candidate is deterministic and keeps the bounds on
// errors.
struct CudaTrial {
  // x, weights, bias, y of a convolution; a, b, bias, c of a product: by their numbers.
  struct Operand {
    int number = 0;
    size_t bytes = 0;
  };
  struct TrialCandidate {
    std::string choice;  // as choices() will have it
    size_t scratch_bytes = 0;
    // Enqueues on stream.  operands: as CudaTrial's.
    std::function<absl::Status(Stream& stream, std::span<void* const> operands, void* scratch)> run;
  };
  std::string what;
  DType dtype = DType::kF32;
  bool relu = false;                            // the result is max(x, 0), which must hand NaNs on
  std::vector<Operand> operands = {};           // the last is assigned
  std::vector<TrialCandidate> candidates = {};  // one or more
};

// Chooses among them.  Asked once for each operation and pass that is prepared, in the same order
// on every rank, whatever its share of the batch.
class CudaSelector {
 public:
  virtual ~CudaSelector() = default;
  // How many candidates it wants to choose from; at least 1.
  virtual size_t most_candidates() const = 0;
  // An index into trial.candidates.  Errors end Prepare.
  virtual absl::StatusOr<size_t> Select(const CudaTrial& trial) = 0;
};

struct CudaLibraryOptions {
  bool tf32 = false;  // F32 products may round their factors to 10 bits of fraction
  // Must outlive the library; null: the heuristics' favourite.
  CudaSelector* selector = nullptr;
};

// The libraries of a device of NewCudaDevice, best first: cuBLASLt and cuDNN (F64 GEMM; F32, F16
// and BF16; deterministic algorithms alone), then the reference.  The device must outlive the
// result.  Errors: Unimplemented in a build without CUDA; Unavailable naming the library that is
// missing or too old, its version, and where it was looked for.
absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CudaLibraryOptions& options);

}  // namespace gyre
