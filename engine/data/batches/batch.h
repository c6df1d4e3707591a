// batch.h: one step's samples in contiguous host memory, so that one copy takes them to a device.
// Plain data.  The memory's owner decides how long it lives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/math.h"
#include "engine/runtime/tensor.h"

namespace gyre {

struct Batch {
  // [count, ...] each, bound even if count is 0, at the offsets that AfterArray gives.
  std::vector<Tensor> arrays;
  int64_t first_position = 0;
  std::vector<int64_t> samples = {};  // [count], their indices in the data set
  // Samples that could not be read, and are zeros.  Who uses the batch counts or refuses them.
  struct FaultySample {
    int64_t sample = 0;   // of the batch, ascending
    std::string message;  // with its file
  };
  std::vector<FaultySample> faults = {};
};

// Offset of the array after one at `offset`.  It is a multiple of a cache line, and always larger,
// so that empty tensors have distinct addresses.
constexpr size_t AfterArray(size_t offset, size_t bytes) {
  constexpr size_t kCacheLine = 64;
  return RoundUp(offset + bytes + 1, kCacheLine);
}

// Bytes that BatchAt binds.  They are whole cache lines, so that adjacent batches share none.
inline size_t BatchBytes(std::span<const Tensor> arrays) {
  size_t end = 0;
  for (const Tensor& array : arrays) end = AfterArray(end, array.bytes());
  return end;
}

// A batch in `memory` of arrays of these shapes and types, which need not be bound.
inline Batch BatchAt(std::byte* memory, std::vector<Tensor> arrays) {
  size_t offset = 0;
  for (Tensor& array : arrays) {
    array.data = memory + offset;
    offset = AfterArray(offset, array.bytes());
  }
  return {.arrays = std::move(arrays)};
}

}  // namespace gyre
