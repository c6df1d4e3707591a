// batch.h: one step's samples in host memory, in one piece, so that one copy takes them to a
// device. Plain data: whoever owns the memory says how long it stays.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/runtime/math.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// What each value of a pixel stands for, normalised.
using PixelValues = std::array<double, 256>;

struct Batch {
  Tensor images;  // [count, H, W, C]: values, or U8 pixels; bound even if count is 0
  Tensor labels;  // [count], I32, LabelsOffset behind the images
  const PixelValues* pixel_values = nullptr;  // of pixels
  int64_t first_position = 0;
  std::vector<int64_t> samples = {};  // [count], their indices in the data set
};

// From images of so many bytes to their labels: a cache line's multiple, and never 0, so that empty
// tensors have addresses of their own.
constexpr size_t LabelsOffset(size_t images_bytes) {
  constexpr size_t kCacheLine = 64;
  return RoundUp(images_bytes + 1, kCacheLine);
}

// Bytes that BatchAt binds: whole cache lines, so that batches laid end to end share none.
inline size_t BatchBytes(const Shape& images, DType dtype) {
  const size_t images_bytes = static_cast<size_t>(images.elements()) * SizeOf(dtype);
  return LabelsOffset(images_bytes) +
         LabelsOffset(static_cast<size_t>(images[0]) * sizeof(int32_t));
}

inline Batch BatchAt(std::byte* memory, const Shape& images, DType dtype) {
  Batch batch;
  batch.images = {memory, images, dtype};
  batch.labels = {memory + LabelsOffset(batch.images.bytes()), Shape{images[0]}, DType::kI32};
  return batch;
}

}  // namespace gyre
