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
HOST_DEVICE RandomBits Philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo);

// Uniform in [0, 1): the top 24 bits (float) or 53 bits (double; `low` supplies the lower bits).
HOST_DEVICE float UniformFloat(uint32_t bits);
HOST_DEVICE double UniformDouble(uint32_t high, uint32_t low);

// Two independent standard normal deviates (Box-Muller) from four words.
struct NormalPair {
  double first, second;
};
NormalPair Normals(const RandomBits& bits);

// Mixes a seed and a name into a key, so that each layer and each purpose has its own sequence.
uint64_t RandomKey(uint64_t seed, std::string_view purpose);

}  // namespace gyre
