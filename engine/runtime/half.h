// half.h: 16-bit floating-point numbers for storage, which arithmetic converts to float.
// Conversion back rounds to nearest, ties to even, with the same bits on every device.  A NaN is
// 0x7FFF (CUDA's).
//
// They are structs because nvcc does not know _Float16 and g++ 12 lacks __bf16.  Conversions
// compute every case and select, so that loops of them are vectorised.
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"
#include "engine/runtime/math.h"
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace gyre {
namespace half_internal {

inline constexpr uint16_t kNaN = 0x7FFF;

}  // namespace half_internal

// IEEE 754 binary16, with 5 bits of exponent and 10 of fraction, up to 65504 and down to 2^-24.
struct Half {
  uint16_t bits;

  Half() = default;
  HOST_DEVICE explicit Half(float value) : bits(FromFloat(value)) {}
  HOST_DEVICE operator float() const { return ToFloat(bits); }

 private:
  HOST_DEVICE static uint16_t FromFloat(float value) {
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(value));
#else
    using namespace half_internal;
    const uint32_t wide = BitCast<uint32_t>(value);
    const uint32_t sign = wide >> 16 & 0x8000u, magnitude = wide & 0x7FFFFFFFu;
    // Re-bias the exponent from 127 to 15 and round 13 bits off.
    const uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
    // Below 2^-14, multiples of 2^-24.  A float in [0.5, 1) has this last bit, so adding rounds.
    const uint32_t tiny =
        BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f) - BitCast<uint32_t>(0.5f);
    uint32_t narrow = magnitude < 0x38800000u ? tiny : normal;
    narrow = magnitude < 0x477FF000u ? narrow : 0x7C00u;  // beyond it rounds to 2^16 or more
    return static_cast<uint16_t>(magnitude <= 0x7F800000u ? sign | narrow : kNaN);
#endif
  }

  HOST_DEVICE static float ToFloat(uint16_t narrow) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(narrow));
#else
    using namespace half_internal;
    const uint32_t sign = static_cast<uint32_t>(narrow & 0x8000u) << 16;
    const uint32_t magnitude = narrow & 0x7FFFu;
    const uint32_t normal = (magnitude << 13) + 0x38000000u;
    const uint32_t infinite = magnitude << 13 | 0x7F800000u;  // or not a number
    // A multiple of 2^-24, exact in float.
    const uint32_t tiny =
        BitCast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    const uint32_t wide = magnitude < 0x400u ? tiny : magnitude < 0x7C00u ? normal : infinite;
    return BitCast<float>(sign | wide);
#endif
  }
};

// The upper half of a float, with 8 bits of exponent and 7 of fraction.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  HOST_DEVICE explicit BFloat16(float value) : bits(FromFloat(value)) {}
  HOST_DEVICE operator float() const { return BitCast<float>(static_cast<uint32_t>(bits) << 16); }

 private:
  HOST_DEVICE static uint16_t FromFloat(float value) {
#if defined(__CUDA_ARCH__)
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    using namespace half_internal;
    const uint32_t wide = BitCast<uint32_t>(value);
    const uint32_t narrow = (wide + 0x7FFFu + (wide >> 16 & 1u)) >> 16;
    return static_cast<uint16_t>((wide & 0x7FFFFFFFu) <= 0x7F800000u ? narrow : kNaN);
#endif
  }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

}  // namespace gyre
