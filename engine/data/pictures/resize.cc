#include "engine/data/pictures/resize.h"

#include <cstring>

#include "engine/data/pictures/pixels/axis_weights.h"
#include "engine/data/pictures/pixels/resample.h"
#include "engine/runtime/check.h"

namespace gyre {

void Resize(const Pixels& from, ResizeFilter filter, int64_t height, int64_t width,
            const Window& part, uint8_t* to) {
  const int64_t bottom = part.top + part.height, right = part.left + part.width;
  GYRE_CHECK(from.height > 0 && from.width > 0 && part.height > 0 && part.width > 0);
  GYRE_CHECK(part.top >= 0 && bottom <= height && part.left >= 0 && right <= width);
  if (height == from.height && width == from.width) {  // every filter is the identity
    for (int64_t y = part.top; y < bottom; ++y) {
      const int64_t bytes = part.width * from.channels;
      memcpy(to + (y - part.top) * bytes, from.data + (y * width + part.left) * from.channels,
             bytes);
    }
    return;
  }
  Resample(from, ResizeWeights(filter, from.width, width, part.left, right),
           ResizeWeights(filter, from.height, height, part.top, bottom), to);
}

}  // namespace gyre
