// context.h: what the CUDA operations share, inside the library only: handles,
// options, the record of choices, and the rules on pointers.
//
// One host thread at a time uses a library and its operations: a cuDNN handle has one current
// stream, and a cuBLASLt description holds the bias pointer of the run under way.
#pragma once

#include <set>
#include <string>

#include "engine/runtime/device/cuda/cuda_libraries.h"
#include "engine/runtime/primitives/cuda/library.h"

namespace gyre {

// Both libraries' fast kernels load 16 bytes at a time, and their heuristics leave those kernels
// out for operands that are declared with less.
inline constexpr int64_t kOperandAlignment = 16;

// Scratch of an operation for the partial sums of products that are split along the summed extent.
// NVIDIA's advice for Hopper (cuBLAS documentation, cublasSetWorkspace), older GPUs want less.
inline constexpr size_t kSplitWorkspaceBytes = size_t{32} << 20;

// What cudaMalloc gives, and so what both libraries may take for granted of their workspace.
inline constexpr size_t kWorkspaceAlignment = 256;

// Scratch, of kOperandAlignment, that holds such a workspace; and where in it that begins.
inline size_t ScratchFor(size_t workspace_bytes) {
  return workspace_bytes == 0 ? 0 : workspace_bytes + kWorkspaceAlignment - kOperandAlignment;
}
inline void* WorkspaceIn(void* scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1;
  return reinterpret_cast<void*>(address - address % kWorkspaceAlignment);
}

// The handles of one library; shared by its operations, which may outlive it.
class CudaContext {
 public:
  CudaContext(const CublasLt& cublaslt, const Cudnn& cudnn, const CudaLibraryOptions& options)
      : cublaslt(cublaslt), cudnn(cudnn), options(options) {}
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  absl::Status CreateHandles();

  // Candidates to prepare for Select.
  size_t most_candidates() const {
    return options.selector == nullptr ? 1 : options.selector->most_candidates();
  }
  // The candidate to take, which is recorded.  Precondition: there are any.
  absl::StatusOr<size_t> Select(const CudaTrial& trial);
  // Of what was not selected.
  void Record(const std::string& what, const std::string& choice);
  // See PrimitiveLibrary::choices.
  std::string choices() const;

  const CublasLt& cublaslt;
  const Cudnn& cudnn;
  const CudaLibraryOptions options;
  cublasLtHandle_t cublaslt_handle = nullptr;
  cudnnHandle_t cudnn_handle = nullptr;

 private:
  std::set<std::string> choices_;
};

// InvalidArgument naming the operand unless the pointer suits kOperandAlignment.
absl::Status CheckAligned(const void* pointer, const char* operand);

// y = activation(y + bias) for y: [rows, columns], bias: [columns] or null; where the vendor's
// library has no epilogue for it.  Enqueues on stream.
absl::Status AddBiasAndActivate(Stream& stream, DType dtype, Activation activation, int64_t rows,
                                int64_t columns, const void* bias, void* y);

absl::StatusOr<std::unique_ptr<Gemm>> PrepareCudaGemm(std::shared_ptr<CudaContext> context,
                                                      const GemmSpec& spec);
absl::StatusOr<std::unique_ptr<Conv2d>> PrepareCudaConv2d(std::shared_ptr<CudaContext> context,
                                                          const Conv2dSpec& spec);
absl::StatusOr<std::shared_ptr<const BatchNorm>> PrepareCudaBatchNorm(
    std::shared_ptr<CudaContext> context, const BatchNormSpec& spec);

}  // namespace gyre
