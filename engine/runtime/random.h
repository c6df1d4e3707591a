// random.h: counter-based random numbers.  No state is carried, so the same (key, counter) gives
// the same bits on every device, thread count and rank count.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", Philox4x32-10.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "engine/runtime/host_device.h"
#include "engine/runtime/math.h"

namespace gyre {

struct RandomBits {
  uint32_t v[4];
};

// Ten rounds of Philox4x32 over the 128-bit counter (hi, lo) under a 64-bit key, low words first.
HOST_DEVICE inline RandomBits Philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo) {
  // Multipliers are the paper's.  The key's increments are the golden ratio and sqrt(3) - 1.
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_lo), c1 = static_cast<uint32_t>(counter_lo >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_hi), c3 = static_cast<uint32_t>(counter_hi >> 32);
  const auto round = [&] {
    const uint64_t product0 = uint64_t{kMultiplier0} * c0;
    const uint64_t product1 = uint64_t{kMultiplier1} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  };
  // No loop, because a loop of calls is vectorised only if it has none inside.
  round(), round(), round(), round(), round();
  round(), round(), round(), round(), round();
  return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1), from 24 bits (float) or 53 (double, `low` has the lower bits).
HOST_DEVICE inline float UniformFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}
// The terms do not overlap, so the sum is exact.  Vectors have 32-bit conversions only.
HOST_DEVICE inline double UniformDouble(uint32_t high, uint32_t low) {
  return static_cast<double>(high) * 0x1p-32 + static_cast<double>(low >> 11) * 0x1p-53;
}

// Two independent standard normal deviates (Box-Muller) from four words.
struct NormalPair {
  double first, second;
};
HOST_DEVICE NormalPair Normals(const RandomBits& bits);

// Mixes a seed and a name into a key, so that each layer and each purpose has its own sequence.
uint64_t RandomKey(uint64_t seed, std::string_view purpose);

// ---- Normals without branches and library calls, so that a loop of them is vectorised -----------

namespace random_internal {

// Returns -log(u) for u in [2^-53, 1], to some 2e-16 relative.  u = 2^e m, m in [sqrt(1/2),
// sqrt(2)), and log(m) = 2 artanh(s) with s = (m - 1) / (m + 1), by its series.  s^2 < 0.0295, so
// the first term left out, s^22 / 23, is below 1e-17.
HOST_DEVICE inline double MinusLog(double u) {
  // Exponents change at sqrt(1/2) times a power of two.  This is sqrt(1/2)'s upper word.
  constexpr uint32_t kRootOfHalf = 0x3fe6a09e;
  const uint64_t bits = BitCast<uint64_t>(u);
  const uint32_t high = static_cast<uint32_t>(bits >> 32) + (0x3ff00000 - kRootOfHalf);
  const int32_t exponent = static_cast<int32_t>(high >> 20) - 0x3ff;
  const uint64_t mantissa = uint64_t{(high & 0xfffff) + kRootOfHalf} << 32 | (bits & 0xffffffff);
  const double m = BitCast<double>(mantissa);
  const double s = (m - 1) / (m + 1), z = s * s;
  const double series = Polynomial(z, 1, 1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15,
                                   1. / 17, 1. / 19, 1. / 21);
  return -(exponent * std::numbers::ln2 + 2 * s * series);
}

// Returns cos and sin of 2 pi turn, for turn in [0, 1).  Taylor's series give them for the angle to
// the nearest quarter turn, then they are turned back.  The first terms left out are below
// (pi/4)^17 / 17! = 5e-17.
HOST_DEVICE inline NormalPair CosSin(double turn) {
  const auto quarter = static_cast<int32_t>(4 * turn + 0.5);
  const double x = (turn - 0.25 * quarter) * (2 * std::numbers::pi), z = x * x;
  const double cosine = Polynomial(-z, 1, 1. / 2, 1. / 24, 1. / 720, 1. / 40320, 1. / 3628800,
                                   1. / 479001600, 1. / 87178291200, 1. / 20922789888000);
  const double sine = x * Polynomial(-z, 1, 1. / 6, 1. / 120, 1. / 5040, 1. / 362880, 1. / 39916800,
                                     1. / 6227020800, 1. / 1307674368000);
  // By quarters: (c, s), (-s, c), (-c, -s), (s, -c).
  const bool odd = (quarter & 1) != 0;
  const double first = odd ? sine : cosine, second = odd ? cosine : sine;
  return {((quarter + 1) & 2) != 0 ? -first : first, (quarter & 2) != 0 ? -second : second};
}

}  // namespace random_internal

HOST_DEVICE inline NormalPair Normals(const RandomBits& bits) {
  const double u = 1 - UniformDouble(bits.v[0], bits.v[1]);  // (0, 1]: log(0) cannot happen
  const double radius = std::sqrt(2 * random_internal::MinusLog(u));
  const NormalPair on_circle = random_internal::CosSin(UniformDouble(bits.v[2], bits.v[3]));
  return {radius * on_circle.first, radius * on_circle.second};
}

}  // namespace gyre
