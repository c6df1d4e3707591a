// batch.h: one step's samples in host memory, in one piece, so that one copy takes them to a
// device.  Plain data: whoever owns the memory says how long it stays.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/runtime/math.h"
#include "engine/runtime/tensor.h"

namespace gyre {

struct Batch {
  // [count, ...] each, bound even if count is 0; where they lie says AfterArray.
  std::vector<Tensor> arrays;
  int64_t first_position = 0;
  std::vector<int64_t> samples = {};  // [count], their indices in the data set
};

// Where the array after one at `offset` begins: at a cache line's multiple, and never where that
// one does, so that empty tensors have addresses of their own.
constexpr size_t AfterArray(size_t offset, size_t bytes) {
  constexpr size_t kCacheLine = 64;
  return RoundUp(offset + bytes + 1, kCacheLine);
}

// Bytes that BatchAt binds: whole cache lines, so that batches laid end to end share none.
inline size_t BatchBytes(std::span<const Tensor> arrays) {
  size_t end = 0;
  for (const Tensor& array : arrays) end = AfterArray(end, array.bytes());
  return end;
}

// A batch of arrays like these, which need not be bound.
inline Batch BatchAt(std::byte* memory, std::vector<Tensor> arrays) {
  size_t offset = 0;
  for (Tensor& array : arrays) {
    array.data = memory + offset;
    offset = AfterArray(offset, array.bytes());
  }
  return {.arrays = std::move(arrays)};
}

}  // namespace gyre
