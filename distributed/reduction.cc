// reduction.cc: see reduction.h.

#include "distributed/reduction.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

// Squares are added in this many interleaved sums: enough for the vectors of every machine, and
// fixed, so that the order of additions is.
constexpr int kLanes = 8;

template <bool kAdd, typename T>
[[gnu::always_inline]] inline double SumOfSquares(T* sum, const T* addend, int64_t count) {
  double lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      if constexpr (kAdd) sum[i + lane] += addend[i + lane];
      const double x = sum[i + lane];
      lanes[lane] += x * x;
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    if constexpr (kAdd) sum[i] += addend[i];
    const double x = sum[i];
    lanes[i - whole] += x * x;
  }
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

#if defined(__x86_64__)
// With vectors of four doubles this pass is bound by memory, as the plain addition is; with two, it
// takes a sixth of the time of a whole 4 MB ring of two ranks.  The same bits.
template <bool kAdd, typename T>
[[gnu::target("avx2")]] double SumOfSquaresAvx2(T* sum, const T* addend, int64_t count) {
  return SumOfSquares<kAdd, T>(sum, addend, count);
}
#endif

template <bool kAdd, typename T>
double FastestSumOfSquares(T* sum, const T* addend, int64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return SumOfSquaresAvx2<kAdd, T>(sum, addend, count);
#endif
  return SumOfSquares<kAdd, T>(sum, addend, count);
}

}  // namespace

absl::Status CheckSummable(DType dtype) {
  if (IsComputeType(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot sum ", std::string(DTypeName(dtype)), "; there are: F32, F64"));
}

void AddTo(DType dtype, void* sum, const void* addend, int64_t count) {
  VisitComputeType(dtype, [&]<typename T>() {
    T* const to = static_cast<T*>(sum);
    const T* const from = static_cast<const T*>(addend);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  });
}

double AddToAndMeasure(DType dtype, void* sum, const void* addend, int64_t count) {
  return VisitComputeType(dtype, [&]<typename T>() {
    T* const to = static_cast<T*>(sum);
    return FastestSumOfSquares<true>(to, static_cast<const T*>(addend), count);
  });
}

double Measure(DType dtype, const void* data, int64_t count) {
  return VisitComputeType(dtype, [&]<typename T>() {
    const T* const from = static_cast<const T*>(data);
    return FastestSumOfSquares<false, const T>(from, nullptr, count);
  });
}

}  // namespace gyre
