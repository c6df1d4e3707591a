// made_pictures.h: pixels that a test makes.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/data/pictures/resize.h"

namespace gyre {

using Bytes = std::vector<uint8_t>;

// Random bytes, and 0 and 255 often, so that sums reach their bounds.
inline Bytes RandomBytes(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (uint8_t& byte : bytes) {
    const uint64_t bits = random();
    byte = static_cast<uint8_t>(bits >> 8 & 3 ? bits : bits & 1 ? 255 : 0);
  }
  return bytes;
}

// Byte (y, x, c) is 83 y + 41 x x + 101 c + 7 x y, modulo 256.
inline Bytes PatternBytes(int64_t height, int64_t width, int channels) {
  Bytes bytes;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        bytes.push_back(static_cast<uint8_t>(83 * y + 41 * x * x + 101 * c + 7 * x * y));
      }
    }
  }
  return bytes;
}

}  // namespace gyre
