// F16 is converted by the processor's own instructions, which round as half.h does and differ in
// what they make of NaNs: here those are put right.  Arrays beyond the caches are written past
// them, so that no line is read only to be overwritten.
#include "engine/runtime/primitives/converting/convert.h"

#include <algorithm>

#include "engine/runtime/parallel/parallel.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gyre {
namespace {

template <typename From, typename To>
struct CastElement {
  const From* from;
  To* to;
  void operator()(int64_t i) const { to[i] = static_cast<To>(from[i]); }
};

// Elements [0, n) on the calling thread.
template <typename From, typename To>
void ConvertRange(const From* from, To* to, int64_t n) {
  parallel_internal::Run(
      parallel_internal::ForEachBody<CastElement<From, To>>{{.from = from, .to = to}}, 0, n);
}

#if defined(__x86_64__)

constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// A CPU with AVX-512 has these, too.
bool HasF16c() {
  static const bool has = __builtin_cpu_supports("f16c") != 0;
  return has && CurrentInstructionSet() != InstructionSet::kGeneric;
}

// These convert whole vectors, and return how many elements that were.

// The instruction quiets a NaN that half.h leaves as it is.
[[gnu::target("avx2,f16c")]] int64_t WidenVectors(const Half* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m256i bits = _mm256_cvtepi16_epi32(half);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFF));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7C00));
    const __m256i nan = _mm256_or_si256(_mm256_slli_epi32(bits, 13), _mm256_set1_epi32(0x7F800000));
    const __m256i number = _mm256_castps_si256(_mm256_cvtph_ps(half));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_blendv_epi8(number, nan, is_nan));
  }
  return i;
}

// half.h has one NaN.
[[gnu::target("avx2,f16c")]] int64_t NarrowVectors(const float* from, Half* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 value = _mm256_loadu_ps(from + i);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m128i is_nan16 =
        _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
    const __m128i nan = _mm_set1_epi16(half_internal::kNaN);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_blendv_epi8(_mm256_cvtps_ph(value, kRound), nan, is_nan16));
  }
  return i;
}

template <>
void ConvertRange(const Half* from, float* to, int64_t n) {
  int64_t done = HasF16c() ? WidenVectors(from, to, n) : 0;
  for (; done < n; ++done) to[done] = static_cast<float>(from[done]);
}

template <>
void ConvertRange(const float* from, Half* to, int64_t n) {
  int64_t done = HasF16c() ? NarrowVectors(from, to, n) : 0;
  for (; done < n; ++done) to[done] = static_cast<Half>(from[done]);
}

constexpr int64_t kLine = 64;  // bytes of a cache line

// Past the caches, a block at a time: converted into the L1 cache, then sent out by whole lines.
template <typename From, typename To>
void ConvertPastCaches(const From* from, To* to, int64_t n) {
  constexpr int64_t kBlock = 256;
  // The processor looks ahead no further than a page; so far ahead that memory has answered.
  constexpr int64_t kAhead = 8 * kBlock;
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  int64_t i = std::min<int64_t>(n, (kLine - misaligned) % kLine / static_cast<int64_t>(sizeof(To)));
  ConvertRange(from, to, i);
  alignas(kLine) To block[kBlock];
  for (; i + kBlock <= n; i += kBlock) {
    for (int64_t k = 0; k < kBlock; k += kLine / static_cast<int64_t>(sizeof(From))) {
      __builtin_prefetch(from + std::min(i + kAhead + k, n - 1));
    }
    ConvertRange(from + i, block, kBlock);
    const auto* const lines = reinterpret_cast<const __m128i*>(block);
    auto* const out = reinterpret_cast<__m128i*>(to + i);
    for (size_t k = 0; k < kBlock * sizeof(To) / sizeof(__m128i); ++k) {
      _mm_stream_si128(out + k, _mm_load_si128(lines + k));
    }
  }
  ConvertRange(from + i, to + i, n - i);
  _mm_sfence();  // before another thread is told that it is there
}

#else

template <typename From, typename To>
void ConvertPastCaches(const From* from, To* to, int64_t n) {
  ConvertRange(from, to, n);
}

#endif

// Written bytes from which on a share of a last-level cache does not hold the array: measured, 2^20
// elements stay in it, and writing past it takes half as long again; 2^24 do not.
constexpr int64_t kBeyondCaches = int64_t{16} << 20;

template <typename From, typename To>
struct ConvertBody {
  const From* from;
  To* to;
  bool past_caches;
  void operator()(int64_t begin, int64_t end) const {
    const auto convert = past_caches ? ConvertPastCaches<From, To> : ConvertRange<From, To>;
    convert(from + begin, to + begin, end - begin);
  }
};

}  // namespace

template <typename From, typename To>
absl::Status ConvertArray(Stream& stream, int64_t n, const From* from, To* to) {
  return stream.Call([=] {
    const bool past_caches = n * static_cast<int64_t>(sizeof(To)) > kBeyondCaches;
    parallel_internal::RunOnTeam(n, n >= parallel_internal::kGrain,
                                 ConvertBody<From, To>{from, to, past_caches});
    return absl::OkStatus();
  });
}

template absl::Status ConvertArray(Stream&, int64_t, const Half*, float*);
template absl::Status ConvertArray(Stream&, int64_t, const float*, Half*);
template absl::Status ConvertArray(Stream&, int64_t, const BFloat16*, float*);
template absl::Status ConvertArray(Stream&, int64_t, const float*, BFloat16*);

}  // namespace gyre
