#include "engine/data/pictures/pixels/noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "engine/runtime/check.h"
#include "engine/runtime/parallel/vectorised.h"

namespace gyre {
namespace {

// Quantiles are looked up, because a logarithm and a root for each byte take ten times as long.
// 4096 of two bytes stay in the L1 cache.
constexpr int kQuantileBits = 12, kQuantiles = 1 << kQuantileBits;
// A deviation is 2^kUnitBits, so that 3.7 fit in 16 bits.
constexpr int kUnitBits = 12;
// Bits below the point of a byte's sum.
constexpr int kFractionBits = 16;

// The i-th is what a standard normal deviate is below with probability (i + 1/2) / kQuantiles.
std::array<int16_t, kQuantiles> NormalQuantiles() {
  std::array<int16_t, kQuantiles> quantiles;
  double z = 0;
  for (int i = kQuantiles / 2; i < kQuantiles; ++i) {
    const double above = 1 - (i + 0.5) / kQuantiles;
    // Newton's method from the quantile before converges in three steps.  The last step between two
    // quantiles, the longest, takes five.
    for (int step = 0; step < 6; ++step) {
      const double excess = std::erfc(z / std::numbers::sqrt2) / 2 - above;
      z += excess * std::sqrt(2 * std::numbers::pi) * std::exp(z * z / 2);
    }
    quantiles[i] = static_cast<int16_t>(std::lround(z * (1 << kUnitBits)));
    quantiles[kQuantiles - 1 - i] = static_cast<int16_t>(-quantiles[i]);
  }
  return quantiles;
}

constexpr int64_t kWords = 4;   // of a draw.  Each is two deviates
constexpr int64_t kDraws = 64;  // made at a time
constexpr int64_t kBytes = 2 * kWords * kDraws;

// words[word][i] <- the word of the draw `first` + i.
struct DrawWords {
  uint64_t key, first, position;
  uint32_t (*words)[kDraws];
  void operator()(int64_t begin, int64_t end) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const RandomBits bits = Philox(key, first + static_cast<uint64_t>(i), position);
      words[0][i] = bits.v[0];
      words[1][i] = bits.v[1];
      words[2][i] = bits.v[2];
      words[3][i] = bits.v[3];
    }
  }
};

struct AddScaledNoise {
  const int32_t* noise;
  int32_t scale;
  uint8_t* data;
  void operator()(int64_t begin, int64_t end) const {
    constexpr int32_t kHalf = 1 << (kFractionBits - 1);
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const int32_t sum = (int32_t{data[i]} << kFractionBits) + noise[i] * scale + kHalf;
      data[i] = static_cast<uint8_t>(std::min(std::max(sum >> kFractionBits, 0), 255));
    }
  }
};

}  // namespace

void AddNoise(double deviation, const SampleDraw& draw, const ColorPixels& pixels) {
  GYRE_CHECK(deviation >= 0 && deviation <= 256);
  static const std::array<int16_t, kQuantiles> quantiles = NormalQuantiles();
  const auto scale =
      static_cast<int32_t>(std::lround(deviation * (1 << (kFractionBits - kUnitBits))));
  const uint64_t key = RandomKey(draw.seed, "noise");
  const int64_t bytes = pixels.count * pixels.channels;
  uint32_t words[kWords][kDraws];
  int32_t noise[kBytes];
  for (int64_t first = 0; first < bytes; first += kBytes) {
    parallel_internal::Run(DrawWords{.key = key,
                                     .first = static_cast<uint64_t>(first / kBytes * kDraws),
                                     .position = static_cast<uint64_t>(draw.position),
                                     .words = words},
                           0, kDraws);
    for (int64_t word = 0; word < kWords; ++word) {
      for (int64_t i = 0; i < kDraws; ++i) {
        const uint32_t bits = words[word][i];
        noise[2 * word * kDraws + i] = quantiles[bits % kQuantiles];
        noise[(2 * word + 1) * kDraws + i] = quantiles[bits >> (32 - kQuantileBits)];
      }
    }
    if (pixels.channels == 4) {
      for (int64_t i = 3; i < kBytes; i += 4) noise[i] = 0;
    }
    parallel_internal::Run(AddScaledNoise{noise, scale, pixels.data + first}, 0,
                           std::min(kBytes, bytes - first));
  }
}

}  // namespace gyre
