// random.h: counter-based random numbers: the same (key, counter) gives the same bits on every
// device, thread count and rank count, because no state is carried.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", Philox4x32-10.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/runtime/host_device.h"

namespace gyre {

struct RandomBits {
  uint32_t v[4];
};

// Ten rounds of Philox4x32 over the 128-bit counter (hi, lo) under a 64-bit key.
// Words are least significant first.
HOST_DEVICE inline RandomBits Philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo) {
  // Multipliers from the paper's search; the key's increments are the golden ratio and sqrt(3) - 1.
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_lo), c1 = static_cast<uint32_t>(counter_lo >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_hi), c3 = static_cast<uint32_t>(counter_hi >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c0;
    const uint64_t product1 = uint64_t{kMultiplier1} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1): the top 24 bits (float) or 53 bits (double; `low` supplies the lower bits).
HOST_DEVICE inline float UniformFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}
HOST_DEVICE inline double UniformDouble(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// Two independent standard normal deviates (Box-Muller) from four words.
struct NormalPair {
  double first, second;
};
NormalPair Normals(const RandomBits& bits);

// Mixes a seed and a name into a key, so that each layer and each purpose has its own sequence.
uint64_t RandomKey(uint64_t seed, std::string_view purpose);

}  // namespace gyre
