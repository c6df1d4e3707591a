// shuffle.h: a random order of numbers, a function of a key and a turn alone.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "engine/data/sample_draw.h"
#include "engine/runtime/random.h"

namespace gyre {

inline uint64_t RandomWord(uint64_t key, int64_t turn, int64_t index) {
  const RandomBits bits = Philox(key, static_cast<uint64_t>(turn), static_cast<uint64_t>(index));
  return uint64_t{bits.v[0]} << 32 | bits.v[1];
}

// Step i draws from counter (turn, first + i).
// Source: Fisher-Yates, Durstenfeld 1964, CACM algorithm 235.
inline void Shuffle(std::span<int64_t> values, uint64_t key, int64_t turn, int64_t first = 0) {
  for (auto i = static_cast<int64_t>(values.size()) - 1; i > 0; --i) {
    const int64_t other = UniformBelowOf64(RandomWord(key, turn, first + i), i + 1);
    std::swap(values[static_cast<size_t>(i)], values[static_cast<size_t>(other)]);
  }
}

}  // namespace gyre
