// cuda.h: the loop skeletons as CUDA kernels.  Included by parallel.h alone, under nvcc.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/parallel/block.h"
#include "engine/runtime/parallel/elements.h"

namespace gyre::parallel_internal {

// Several times the 132 x 8 blocks that an H100 holds at once.  Kernels stride over more work.
inline constexpr int64_t kMaxBlocks = 8192;

// Enqueues kernel(arguments...) with `blocks` blocks, at most kMaxBlocks.
template <typename... Parameters>
absl::Status Launch(const char* skeleton, Stream& stream, int64_t blocks,
                    void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  void* pointers[] = {&arguments...};
  const cudaError_t error = cudaLaunchKernel(
      reinterpret_cast<const void*>(kernel),
      dim3(static_cast<unsigned>(std::min(kMaxBlocks, blocks))), dim3(kThreads), pointers,
      /*sharedMem=*/0, static_cast<cudaStream_t>(stream.native()));
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();  // reported here, not once more by the next call that looks
  return absl::InternalError(
      absl::StrCat(skeleton, ": cudaLaunchKernel: ", cudaGetErrorString(error)));
}

// The block that runs a kernel, in the form that block.h expects.
class CudaBlock {
 public:
  __device__ int64_t index() const { return blockIdx.x; }
  __device__ int64_t count() const { return gridDim.x; }
  template <typename F>
  __device__ void Phase(F f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <typename F>
  __device__ void WarpPhase(F f) {
    f(static_cast<int>(threadIdx.x));
    __syncwarp();
  }
  template <typename F>
  __device__ bool Any(F f) {
    return __syncthreads_or(f(static_cast<int>(threadIdx.x)) ? 1 : 0) != 0;
  }
};

// Returns an array of kThreads in shared memory.  Raw bytes let T have constructors.
template <typename T>
__device__ T* SharedArray() {
  __shared__ alignas(T) unsigned char bytes[sizeof(T) * kThreads];
  return reinterpret_cast<T*>(bytes);
}

template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachKernel(int64_t n, F f) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  CallEach(static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, threads, n, f);
}

template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachCellKernel(int64_t rows, int64_t columns, F f) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  CallEachCell(static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, threads, rows, columns,
               f);
}

// Returns the blocks for n elements.  While a GPU has room for more threads, each takes one
// element.  Beyond that it takes whole batches, if the functor has them.
constexpr int64_t ElementBlocks(int64_t n, bool in_batches) {
  constexpr int64_t kRoom = 1024;  // an H100 holds 132 x 8 blocks
  if (!in_batches || n <= kRoom * kThreads) return CeilDiv<int64_t>(n, kThreads);
  const int64_t each = RoundUp<int64_t>(CeilDiv(n, kMaxBlocks * kThreads), kBatch);
  return CeilDiv(n, each * kThreads);
}

template <typename F>
__global__ void __launch_bounds__(kThreads)
    ForEachPartKernel(const __grid_constant__ PartTable<F> table, const bool* unless) {
  if (unless != nullptr && *unless) return;
  CudaBlock block;
  ForEachPartBlock(block, table);
}

template <typename R>
__global__ void __launch_bounds__(kThreads)
    ForEachRowKernel(int64_t rows, int64_t columns, int64_t pieces, R r) {
  CudaBlock block;
  ForEachRowBlock(block, rows, columns, pieces, r, SharedArray<typename R::Value>());
}

template <typename R>
__global__ void __launch_bounds__(kThreads)
    TransformRowsKernel(int64_t rows, int64_t columns, R r) {
  CudaBlock block;
  TransformRowsBlock(block, rows, columns, r, SharedArray<typename R::Value>());
}

template <typename R>
__global__ void __launch_bounds__(kThreads)
    ReduceColumnsKernel(int64_t rows, int64_t columns, int64_t pieces, R r) {
  CudaBlock block;
  ReduceColumnsBlock(block, rows, columns, pieces, r, SharedArray<typename R::Value>());
}

template <typename S>
__global__ void __launch_bounds__(kThreads) ScatterAddKernel(int64_t rows, int64_t columns, S s) {
  CudaBlock block;
  ScatterAddBlock(block, rows, columns, s, SharedArray<unsigned char>());
}

// Launches over `pieces` pieces of each row (column).
template <typename R>
absl::Status LaunchForEachRow(Stream& stream, int64_t rows, int64_t columns, int64_t pieces,
                              const R& r) {
  if (rows == 0) return absl::OkStatus();
  const int64_t block_pieces = kThreads / RowLanes(CeilDiv(columns, pieces));
  return Launch("ForEachRow", stream, CeilDiv(rows * pieces, block_pieces), ForEachRowKernel<R>,
                rows, columns, pieces, r);
}

template <typename R>
absl::Status LaunchReduceColumns(Stream& stream, int64_t rows, int64_t columns, int64_t pieces,
                                 const R& r) {
  if (columns == 0) return absl::OkStatus();
  const int64_t groups = CeilDiv<int64_t>(columns, ColumnLanes(columns, pieces));
  return Launch("ReduceColumns", stream, pieces * groups, ReduceColumnsKernel<R>, rows, columns,
                pieces, r);
}

// Launches once for as many parts as a table holds.
template <typename F>
absl::Status LaunchForEachPart(Stream& stream, std::span<const FusedLoop<F>> parts,
                               const bool* unless) {
  while (!parts.empty()) {
    PartTable<F> table;
    int64_t blocks = 0;
    table.count = std::min(static_cast<int>(parts.size()), PartTable<F>::kMost);
    for (int k = 0; k < table.count; ++k) {
      table.parts[k] = parts[k];
      blocks += CeilDiv(parts[k].n, kPartElements);
    }
    parts = parts.subspan(table.count);
    if (blocks == 0) continue;
    RETURN_IF_ERROR(Launch("ForEachPart", stream, blocks, ForEachPartKernel<F>, table, unless));
  }
  return absl::OkStatus();
}

}  // namespace gyre::parallel_internal
