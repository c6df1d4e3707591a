// context.h: handles, options, choices and pointer rules of the CUDA operations.  Inside the
// library only.
//
// One host thread at a time uses a library and its operations.  A cuDNN handle has one current
// stream, and a cuBLASLt description holds the bias pointer of the current run.
#pragma once

#include <set>
#include <string>

#include "engine/runtime/device/cuda/cuda_libraries.h"
#include "engine/runtime/primitives/cuda/library.h"

namespace gyre {

// Both libraries' fast kernels load 16 bytes at a time, and their heuristics leave these kernels
// out for operands of a smaller declared alignment.
inline constexpr int64_t kOperandAlignment = 16;

// Scratch for the partial sums of products that are split along the summed extent.  NVIDIA's advice
// for Hopper (cuBLAS documentation, cublasSetWorkspace), older GPUs need less.
inline constexpr size_t kSplitWorkspaceBytes = size_t{32} << 20;

// The alignment of cudaMalloc, which both libraries may expect of their workspace.
inline constexpr size_t kWorkspaceAlignment = 256;

// Bytes of scratch (kOperandAlignment) that hold a workspace, and where in it the workspace begins.
inline size_t ScratchFor(size_t workspace_bytes) {
  return workspace_bytes == 0 ? 0 : workspace_bytes + kWorkspaceAlignment - kOperandAlignment;
}
inline void* WorkspaceIn(void* scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1;
  return reinterpret_cast<void*>(address - address % kWorkspaceAlignment);
}

// The handles of one library.  Its operations share them and may outlive it.
class CudaContext {
 public:
  CudaContext(const CublasLt& cublaslt, const Cudnn& cudnn, const CudaLibraryOptions& options)
      : cublaslt(cublaslt), cudnn(cudnn), options(options) {}
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  absl::Status CreateHandles();

  size_t most_candidates() const {
    return options.selector == nullptr ? 1 : options.selector->most_candidates();
  }
  // Returns the candidate to take, and records it.  Precondition: there are any.
  absl::StatusOr<size_t> Select(const CudaTrial& trial);
  // Records a choice made without Select.
  void Record(const std::string& what, const std::string& choice);
  std::string choices() const;

  const CublasLt& cublaslt;
  const Cudnn& cudnn;
  const CudaLibraryOptions options;
  cublasLtHandle_t cublaslt_handle = nullptr;
  cudnnHandle_t cudnn_handle = nullptr;

 private:
  std::set<std::string> choices_;
};

// Errors: InvalidArgument naming the operand unless the pointer has kOperandAlignment.
absl::Status CheckAligned(const void* pointer, const char* operand);

// y[rows, columns] = activation(y + bias[columns]), for want of an epilogue in the vendor's
// library.  bias may be null.  Enqueues on stream.
absl::Status AddBiasAndActivate(Stream& stream, DType dtype, Activation activation, int64_t rows,
                                int64_t columns, const void* bias, void* y);

absl::StatusOr<std::unique_ptr<Gemm>> PrepareCudaGemm(std::shared_ptr<CudaContext> context,
                                                      const GemmSpec& spec);
absl::StatusOr<std::unique_ptr<Conv2d>> PrepareCudaConv2d(std::shared_ptr<CudaContext> context,
                                                          const Conv2dSpec& spec);
absl::StatusOr<std::shared_ptr<const BatchNorm>> PrepareCudaBatchNorm(
    std::shared_ptr<CudaContext> context, const BatchNormSpec& spec);

}  // namespace gyre
