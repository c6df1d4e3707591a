// Along one axis, of x[4], of a kernel w[3] and of sums of products m[4]:
//   points of x   x0 - x2,  x1 + x2,  x2 - x1,  x1 - x3
//   points of w   w0,  (w0 + w1 + w2) / 2,  (w0 - w1 + w2) / 2,  w2
//   outputs       m0 + m1 + m2,  m1 - m2 - m3
#include "engine/runtime/primitives/blocked/winograd_tiles.h"

#include "engine/runtime/check.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gyre::winograd {
namespace {

// Three values, `step` apart, become four.
void KernelAlongAxis(const double* w, int64_t step, double* points, int64_t points_step) {
  const double even = (w[0] + w[2 * step]) / 2, odd = w[step] / 2;
  const double all[] = {w[0], even + odd, even - odd, w[2 * step]};
  for (int64_t i = 0; i < kSide; ++i) points[i * points_step] = all[i];
}

#if defined(__x86_64__)

using Vector = __m512;

[[gnu::target("avx512f"), gnu::always_inline]] inline void AlongAxis(const Vector (&x)[kSide],
                                                                     Vector (&to)[kSide]) {
  to[0] = _mm512_sub_ps(x[0], x[2]);
  to[1] = _mm512_add_ps(x[1], x[2]);
  to[2] = _mm512_sub_ps(x[2], x[1]);
  to[3] = _mm512_sub_ps(x[1], x[3]);
}

[[gnu::target("avx512f"), gnu::always_inline]] inline void BackAlongAxis(const Vector (&m)[kSide],
                                                                         Vector (&to)[kTile]) {
  to[0] = _mm512_add_ps(m[0], _mm512_add_ps(m[1], m[2]));
  to[1] = _mm512_sub_ps(_mm512_sub_ps(m[1], m[2]), m[3]);
}

#endif

}  // namespace

void KernelToPoints(const float* kernel, float* points, int64_t plane) {
  double rows[kSide * kKernel], both[kPoints], from[kKernelSize];
  for (int64_t i = 0; i < kKernelSize; ++i) from[i] = static_cast<double>(kernel[i]);
  for (int64_t j = 0; j < kKernel; ++j) KernelAlongAxis(from + j, kKernel, rows + j, kKernel);
  for (int64_t i = 0; i < kSide; ++i) {
    KernelAlongAxis(rows + i * kKernel, 1, both + i * kSide, 1);
  }
  for (int64_t i = 0; i < kPoints; ++i) points[i * plane] = static_cast<float>(both[i]);
}

#if defined(__x86_64__)

[[gnu::target("avx512f")]] void ToPoints(const InputTile& tile, float* points, int64_t plane) {
  for (int64_t c = 0; c < tile.channels; c += kLanes) {
    Vector x[kSide], half[kSide][kSide];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kSide; ++j) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kSide; ++i) {
        x[i] = tile.rows(i) && tile.columns(j)
                   ? _mm512_loadu_ps(tile.pixel + i * tile.row + j * tile.channels + c)
                   : _mm512_setzero_ps();
      }
      Vector to[kSide];
      AlongAxis(x, to);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kSide; ++i) half[i][j] = to[i];
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < kSide; ++i) {
      AlongAxis(half[i], x);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kSide; ++j) {
        _mm512_storeu_ps(points + (i * kSide + j) * plane + c, x[j]);
      }
    }
  }
}

[[gnu::target("avx512f")]] void FromPoints(const float* points, int64_t plane,
                                           const OutputTile& tile) {
  Vector m[kSide], half[kTile][kSide], y[kTile];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kSide; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kSide; ++j) m[j] = _mm512_loadu_ps(points + (i * kSide + j) * plane);
    BackAlongAxis(m, y);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kTile; ++j) half[j][i] = y[j];
  }
  const Vector zero = _mm512_setzero_ps();
  const Vector bias = tile.bias == nullptr ? zero : _mm512_loadu_ps(tile.bias);
#pragma GCC unroll 4
  for (int64_t j = 0; j < kTile; ++j) {
    BackAlongAxis(half[j], y);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kTile; ++i) {
      if (!tile.rows(i) || !tile.columns(j)) continue;
      Vector value = _mm512_add_ps(y[i], bias);
      if (tile.activation == Activation::kRelu) {  // as Activate: not 0 or less, or NaN
        value = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(value, zero, _CMP_NLE_UQ), value);
      }
      _mm512_storeu_ps(tile.pixel + i * tile.row + j * tile.column, value);
    }
  }
}

#else

void ToPoints(const InputTile&, float*, int64_t) { GYRE_CHECK(false); }
void FromPoints(const float*, int64_t, const OutputTile&) { GYRE_CHECK(false); }

#endif

}  // namespace gyre::winograd
