// elementary.h: exp and functions made of it, on host and device.
//
// In float they are polynomials without a branch.  A loop over them is vectorised, and gives the
// same bits for every instruction set.  In double they are the library's.  NaN passes through all.
// Bounds of float's error are in units of the last place of a normal result.
// tests/runtime/elementary_test.cc checks them against double.
//
// Polynomials have the least largest error, by Lawson's iteration on Chebyshev points.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/runtime/host_device.h"
#include "engine/runtime/math.h"

namespace gyre {

// e^x within 2 units.
HOST_DEVICE inline double Exp(double x) { return std::exp(x); }
HOST_DEVICE inline float Exp(float x) {
  // Beyond these it is infinity and 0.
  x = x > 89.f ? 89.f : x;
  x = x < -104.f ? -104.f : x;
  // x = n ln 2 + r, |r| <= ln 2 / 2.  Adding 1.5 * 2^23 rounds to an integer in the last bits.
  // With ln 2 in two terms, n times the first is exact.
  constexpr float kRound = 12582912.f;
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  const float p = Polynomial(r, 5.000000096e-1f, 1.666651830e-1f, 4.166620417e-2f, 8.368953708e-3f,
                             1.395060030e-3f);
  const float e = 1.f + (r + r * r * p);
  // 2^n is a product of two, because it may be outside the normal numbers.
  const int32_t exponent = BitCast<int32_t>(shifted) - BitCast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const auto power = [](int32_t k) { return BitCast<float>(static_cast<uint32_t>(k + 127) << 23); };
  return e * power(half) * power(exponent - half);
}

// 1 / (1 + e^-x) within 4 units.
template <typename A>
HOST_DEVICE A Logistic(A x) {
  return A{1} / (A{1} + Exp(-x));
}

// tanh x within 4 units.
HOST_DEVICE inline double Tanh(double x) { return std::tanh(x); }
HOST_DEVICE inline float Tanh(float x) {
  const float a = std::fabs(x), z = x * x;
  const float small =
      x * (1.f + z * Polynomial(z, -3.333328371e-1f, 1.333148494e-1f, -5.374293400e-2f,
                                2.064864611e-2f, -5.714772630e-3f));
  const float large = std::copysign(1.f - 2.f / (Exp(2.f * a) + 1.f), x);
  return a < 0.625f ? small : large;
}

// The normal distribution function, (1 + erf(x / sqrt 2)) / 2.  It is within 12 units if x >= -1.4,
// and within 8e-6 of itself below.
HOST_DEVICE inline double NormalCdf(double x) { return std::erfc(-x * M_SQRT1_2) / 2; }
HOST_DEVICE inline float NormalCdf(float x) {
  const float s = x * 0.707106781f, a = std::fabs(s), z = s * s;
  const float center =
      0.5f + 0.5f * s *
                 Polynomial(z, 1.128379166f, -3.761262714e-1f, 1.128360018e-1f, -2.685444459e-2f,
                            5.189535339e-3f, -8.020841280e-4f, 7.889119534e-5f);
  // e^(a^2) erfc(a) as a polynomial in t, for a from 1 to 10, where erfc is 0.
  const float t = 1.f / (1.f + 0.5f * (a > 10.f ? 10.f : a));
  const float tail = 0.5f * Exp(-0.5f * x * x) *
                     Polynomial(t, -4.103425410e-6f, 2.821994076e-1f, 2.809907620e-1f,
                                2.529674256e-1f, 1.580411858e-1f, 1.053430063e-1f, 2.505987357e-2f,
                                -1.850403946e-1f, 8.089111552e-2f);
  return a < 1.f ? center : x < 0 ? tail : 1.f - tail;
}

}  // namespace gyre
