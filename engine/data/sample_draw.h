// sample_draw.h: random numbers of a training sample, a function of the run's seed and the sample's
// position in the endless order alone.  So they are the same for any ranks, workers and
// interruptions.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/runtime/random.h"

namespace gyre {

// A uniform integer from 0 to bound - 1, of 32 bits.  Precondition: 1 <= bound <= 2^32.
inline int64_t UniformBelow(uint32_t bits, int64_t bound) {
  return static_cast<int64_t>(uint64_t{bits} * static_cast<uint64_t>(bound) >> 32);
}

// A uniform integer from 0 to bound - 1, of 64 bits.  Counts of results differ by at most one among
// the 2^64 inputs, so the bias is below bound / 2^64.
// Source: Lemire 2019, "Fast random integer generation in an interval", arXiv:1805.10941, without
// its rejection step, which would make the number of draws depend on the draws.
inline int64_t UniformBelowOf64(uint64_t bits, int64_t bound) {
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(bound)) >> 64);
}

struct SampleDraw {
  uint64_t seed = 0;
  int64_t position = 0;

  // Four words for the n-th draw of a purpose, such as "flip".
  RandomBits Bits(std::string_view purpose, uint64_t n = 0) const {
    return Philox(RandomKey(seed, purpose), n, static_cast<uint64_t>(position));
  }
  // Uniform in [0, 1).
  double Uniform(std::string_view purpose, uint64_t n = 0) const {
    const RandomBits bits = Bits(purpose, n);
    return UniformDouble(bits.v[0], bits.v[1]);
  }
};

}  // namespace gyre
