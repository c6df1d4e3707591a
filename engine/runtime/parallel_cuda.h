// parallel_cuda.h: the loop skeletons as CUDA kernels; included by parallel.h alone, under nvcc.
//
// A block's reduction is a tree of fixed shape over kThreads partial values, so the order of
// combination depends on the extents alone, as on the CPU (but it is another order).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/device.h"

namespace gyre::parallel_internal {

inline constexpr int kThreads = 256;
// Column reductions: a warp across columns, so that loads coalesce, and rows in turn by 8 warps.
inline constexpr int kWarp = 32;
inline constexpr int kRowLanes = kThreads / kWarp;
// Several times what any GPU holds at once (an H100: 132 x 8 blocks of 256 threads); beyond it the
// kernels stride.
inline constexpr int64_t kMaxBlocks = 8192;

inline unsigned Blocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>(std::min(kMaxBlocks, (work + per_block - 1) / per_block));
}

inline cudaStream_t NativeStream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

// The error of the launch just made, if any.
inline absl::Status LaunchStatus(const char* skeleton) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(skeleton, ": kernel launch failed: ", cudaGetErrorString(error)));
}

// An array in shared memory of values that may have constructors.
template <typename T, int kSize>
__device__ T* SharedArray() {
  __shared__ alignas(T) unsigned char bytes[sizeof(T) * kSize];
  return reinterpret_cast<T*>(bytes);
}

template <typename F>
__global__ void ForEachKernel(int64_t n, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    f(i);
  }
}

template <typename R>
__global__ void ForEachRowKernel(int64_t rows, int64_t columns, R r) {
  typename R::Value* lanes = SharedArray<typename R::Value, kThreads>();
  const int lane = threadIdx.x;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    typename R::Value value = r.Identity();
    for (int64_t column = lane; column < columns; column += kThreads) {
      value = r.Combine(value, r.Load(row, column));
    }
    lanes[lane] = value;
    __syncthreads();
    for (int width = kThreads / 2; width > 0; width /= 2) {
      if (lane < width) lanes[lane] = r.Combine(lanes[lane], lanes[lane + width]);
      __syncthreads();
    }
    if (lane == 0) r.Store(row, lanes[0]);
    __syncthreads();  // lanes[0] is read before the next row overwrites it
  }
}

template <typename R>
__global__ void ReduceColumnsKernel(int64_t rows, int64_t columns, R r) {
  typename R::Value* lanes = SharedArray<typename R::Value, kThreads>();
  const int lane = threadIdx.x % kWarp, row_lane = threadIdx.x / kWarp;
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kWarp; begin < columns;
       begin += static_cast<int64_t>(gridDim.x) * kWarp) {
    const int64_t column = begin + lane;
    typename R::Value value = r.Identity();
    if (column < columns) {
      for (int64_t row = row_lane; row < rows; row += kRowLanes) {
        value = r.Combine(value, r.Load(row, column));
      }
    }
    lanes[threadIdx.x] = value;
    __syncthreads();
    for (int width = kRowLanes / 2; width > 0; width /= 2) {
      if (row_lane < width) {
        lanes[threadIdx.x] = r.Combine(lanes[threadIdx.x], lanes[threadIdx.x + width * kWarp]);
      }
      __syncthreads();
    }
    if (row_lane == 0 && column < columns) r.Store(column, lanes[lane]);
    __syncthreads();
  }
}

template <typename S>
__global__ void ScatterAddKernel(int64_t rows, int64_t columns, S s) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       column < columns; column += stride) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t destination = s.Destination(row);
      if (destination >= 0) s.Add(row, destination, column);
    }
  }
}

}  // namespace gyre::parallel_internal
