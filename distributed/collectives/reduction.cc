#include "distributed/collectives/reduction.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/instruction_set.h"

namespace gyre {
namespace {

// Squares are added in so many interleaved sums: enough for the vectors of every machine, and
// fixed, so that the order of additions is.
constexpr int kLanes = 8;
// Of AddAll: four chains of the widest vectors, so that no addition waits for the one before.
constexpr int kWideLanes = kSquareLanes;

// Calls body(), compiled for the instruction set that the processor has.  The same bits: nothing
// is fused.
template <typename Body>
[[gnu::flatten]] double RunGeneric(Body body) {
  return body();
}
#ifdef GYRE_INSTRUCTION_SETS
template <typename Body>
[[gnu::flatten, gnu::target("avx2")]] double RunAvx2(Body body) {
  return body();
}
template <typename Body>
[[gnu::flatten, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] double
RunAvx512(Body body) {
  return body();
}
#endif
template <typename Body>
double Run(const Body& body) {
  switch (CurrentInstructionSet()) {
#ifdef GYRE_INSTRUCTION_SETS
    case InstructionSet::kAvx512:
      return RunAvx512(body);
    case InstructionSet::kAvx2:
      return RunAvx2(body);
#endif
    default:
      return RunGeneric(body);
  }
}

// sum += addend (kAdd), measured (kMeasure).
template <bool kAdd, bool kMeasure, typename T>
struct Pass {
  T* sum;
  const T* addend;
  int64_t count;

  double operator()() const {
    using A = AccumulateType<T>;
    double lanes[kLanes] = {};
    const int64_t whole = kMeasure ? count / kLanes * kLanes : 0;
    for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        if constexpr (kAdd) sum[i + lane] = T(A(sum[i + lane]) + A(addend[i + lane]));
        const double x = sum[i + lane];
        lanes[lane] += x * x;
      }
    }
    if constexpr (!kMeasure) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) sum[i] = T(A(sum[i]) + A(addend[i]));
      return 0;
    }
    for (int64_t i = whole; i < count; ++i) {
      if constexpr (kAdd) sum[i] = T(A(sum[i]) + A(addend[i]));
      const double x = sum[i];
      lanes[i - whole] += x * x;
    }
    double total = 0;
    for (const double lane : lanes) total += lane;
    return total;
  }
};

// How far ahead of an addition what it needs is asked for, in elements.
template <typename T>
constexpr int64_t kAhead = 2048 / sizeof(T);
// kWideLanes of them.
template <typename T>
void Prefetch(const T* data) {
  for (size_t i = 0; i < kWideLanes; i += 64 / sizeof(T)) __builtin_prefetch(data + i);
}

// Register by register: passes over a block leave the memory idle while they measure and copy (2
// ranks, 4 MB: 230 us so, 150 us in one pass).  What is needed soon is asked for: the processor
// itself looks ahead too little (64 MB: 4.6 ms so, 3.2 ms where it is).
template <typename T>
struct AllInputs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  int64_t count;

  double operator()() const {
    double lanes[kWideLanes] = {};
    const int64_t whole = count / kWideLanes * kWideLanes;
    for (int64_t i = 0; i < whole; i += kWideLanes) {
      // Not beyond the end, where another rank may write.
      if (i + kAhead<T> + kWideLanes <= count) {
        for (const void* const input : inputs) {
          Prefetch(static_cast<const T*>(input) + i + kAhead<T>);
        }
      }
      Add<kWideLanes>(i, lanes);
    }
    for (int64_t i = whole; i < count; ++i) Add<1>(i, lanes + (i - whole));
    return std::accumulate(lanes, lanes + kWideLanes, 0.0);
  }

  template <int kCount>
  void Add(int64_t begin, double* lanes) const {
    using A = AccumulateType<T>;
    A sum[kCount];
    T rounded[kCount];
    const T* const first = static_cast<const T*>(inputs[0]) + begin;
#pragma omp simd
    for (int i = 0; i < kCount; ++i) sum[i] = A(first[i]);
    for (const void* const input : inputs.subspan(1)) {
      const T* const next = static_cast<const T*>(input) + begin;
#pragma omp simd
      for (int i = 0; i < kCount; ++i) sum[i] += A(next[i]);
    }
#pragma omp simd
    for (int i = 0; i < kCount; ++i) {
      rounded[i] = T(sum[i]);
      const double x = rounded[i];
      lanes[i] += x * x;
    }
    for (void* const output : outputs) {
      std::memcpy(static_cast<T*>(output) + begin, rounded, sizeof(rounded));
    }
  }
};

// The same of two that are not halves, and one output or two: the sums need not leave the registers
// (1 MB: 30 us so, 20 us).
template <typename T>
struct TwoInputs {
  const T *first, *second;
  T *output, *copy;
  int64_t count;

  double operator()() const {
    double lanes[kWideLanes] = {};
    const int64_t whole = count / kWideLanes * kWideLanes;
    for (int64_t i = 0; i < whole; i += kWideLanes) {
      if (i + kAhead<T> + kWideLanes <= count) {
        Prefetch(first + i + kAhead<T>);
        Prefetch(second + i + kAhead<T>);
      }
#pragma omp simd
      for (int lane = 0; lane < kWideLanes; ++lane) Add(i + lane, &lanes[lane]);
    }
    for (int64_t i = whole; i < count; ++i) Add(i, &lanes[i - whole]);
    return std::accumulate(lanes, lanes + kWideLanes, 0.0);
  }

  void Add(int64_t i, double* lane) const {
    const double x = output[i] = copy[i] = first[i] + second[i];
    *lane += x * x;
  }
};

template <typename From, typename To>
struct Conversion {
  const From* from;
  To* to;
  int64_t count;

  double operator()() const {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
    return 0;
  }
};

}  // namespace

absl::Status CheckSummable(DType dtype) {
  if (IsReal(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot sum ", std::string(DTypeName(dtype)),
                                                 "; there are: F64, F32, F16, BF16"));
}

void AddTo(DType dtype, void* sum, const void* addend, int64_t count) {
  VisitReal(dtype, [&]<typename T>() {
    Run(Pass<true, false, T>{static_cast<T*>(sum), static_cast<const T*>(addend), count});
  });
}

double AddToAndMeasure(DType dtype, void* sum, const void* addend, int64_t count) {
  return VisitReal(dtype, [&]<typename T>() {
    return Run(Pass<true, true, T>{static_cast<T*>(sum), static_cast<const T*>(addend), count});
  });
}

double Measure(DType dtype, const void* data, int64_t count) {
  return VisitReal(dtype, [&]<typename T>() {
    return Run(Pass<false, true, const T>{static_cast<const T*>(data), nullptr, count});
  });
}

double AddAll(DType dtype, std::span<const void* const> inputs, std::span<void* const> outputs,
              int64_t count) {
  return VisitReal(dtype, [&]<typename T>() {
    if constexpr (std::is_same_v<T, AccumulateType<T>>) {
      if (inputs.size() == 2 && !outputs.empty() && outputs.size() <= 2) {
        const auto in = [&](int i) { return static_cast<const T*>(inputs[i]); };
        return Run(TwoInputs<T>{in(0), in(1), static_cast<T*>(outputs.front()),
                                static_cast<T*>(outputs.back()), count});
      }
    }
    return Run(AllInputs<T>{inputs, outputs, count});
  });
}

void RoundFloats(DType to_type, const float* from, void* to, int64_t count) {
  VisitReal(to_type, [&]<typename T>() {
    Run(Conversion<float, T>{from, static_cast<T*>(to), count});
  });
}

void WidenToFloats(DType from_type, const void* from, float* to, int64_t count) {
  VisitReal(from_type, [&]<typename T>() {
    Run(Conversion<T, float>{static_cast<const T*>(from), to, count});
  });
}

}  // namespace gyre
