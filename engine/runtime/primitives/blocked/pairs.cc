// A tile of c as in products.cc: an element of a is two of them, and so is a lane of b.
#include "engine/runtime/primitives/blocked/pairs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/instruction_set.h"
#include "engine/runtime/primitives/blocked/products.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gyre {

#if defined(__x86_64__)
namespace {

constexpr int64_t kLanes = 16;
constexpr int kMostVectors = kProductColumns / kLanes;

// Where a tile begins, and the columns that its last vector has: a copy, as in products.cc.
struct PairTile {
  const BFloat16* a;
  BFloat16* c;
  __mmask16 last;
};

[[gnu::target("avx512f,avx512bf16"), gnu::always_inline]] inline __m512bh Load(
    const BFloat16* from) {
  return (__m512bh)_mm512_loadu_si512(from);
}

// Two neighbours of a row.
[[gnu::always_inline]] inline int32_t PairAt(const BFloat16* a) {
  int32_t pair;
  std::memcpy(&pair, a, sizeof(pair));
  return pair;
}

template <int kRows, int kVectors>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void PairsTile(const PairProducts& p,
                                                                       const PairTile& tile) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_setzero_ps();
  }
  const BFloat16 *a = tile.a, *b = p.b;
  for (int64_t pair = 0; pair < p.inner / 2; ++pair) {
    __m512bh pairs[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) pairs[v] = Load(b + 2 * v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto element = (__m512bh)_mm512_set1_epi32(PairAt(a + i * p.a_row));
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = _mm512_dpbf16_ps(sum[i][v], element, pairs[v]);
      }
    }
    a += 2;
    b += 2 * kProductColumns;
  }
  if (p.inner % 2 != 0) {  // a's row ends here
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto element = (__m512bh)_mm512_set1_epi32(a[i * p.a_row].bits);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = _mm512_dpbf16_ps(sum[i][v], element, Load(b + 2 * v * kLanes));
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 lanes = v + 1 < kVectors ? 0xFFFF : tile.last;
      BFloat16* const to = tile.c + i * p.c_row + v * kLanes;
      if (p.accumulate) {
        // Those without a mask make g++ 12 warn.
        const __m512i low = _mm512_maskz_cvtepu16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, to));
        const __m512 before = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(lanes, low, 16));
        sum[i][v] = _mm512_add_ps(before, sum[i][v]);
      }
      _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(sum[i][v]));
    }
  }
}

using Multiply = void (*)(const PairProducts&, const PairTile&);

template <size_t... kIndex>
constexpr auto PairsTiles(std::index_sequence<kIndex...>) {
  return std::array<Multiply, sizeof...(kIndex)>{
      PairsTile<kIndex / kMostVectors + 1, kIndex % kMostVectors + 1>...};
}

}  // namespace

bool HasPairProducts() {
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has && CurrentInstructionSet() == InstructionSet::kAvx512;
}

void MultiplyPairs(const PairProducts& p) {
  static constexpr auto kTiles =
      PairsTiles(std::make_index_sequence<kProductRows * kMostVectors>());
  const int64_t vectors = CeilDiv(p.columns, kLanes);
  const auto last = static_cast<__mmask16>(0xFFFF >> (vectors * kLanes - p.columns));
  for (int64_t row = 0; row < p.rows; row += kProductRows) {
    const int64_t rows = std::min(kProductRows, p.rows - row);
    kTiles[(rows - 1) * kMostVectors + vectors - 1](
        p, {p.a + row * p.a_row, p.c + row * p.c_row, last});
  }
}

#else

bool HasPairProducts() { return false; }
void MultiplyPairs(const PairProducts&) { GYRE_CHECK(false); }

#endif

}  // namespace gyre
