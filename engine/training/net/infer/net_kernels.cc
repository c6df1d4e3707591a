#include "engine/training/net/infer/net_kernels.h"

#include <algorithm>

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct FillWith {
  T value;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = value; }
};

template <typename T>
struct FillProduct {
  double value;
  const double* scale;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = static_cast<T>(value * *scale); }
};

template <typename From, typename To>
struct ConvertElement {
  const From* from;
  To* to;
  HOST_DEVICE To Load(int64_t i) const {
    return static_cast<To>(static_cast<AccumulateType<To>>(from[i]));
  }
  HOST_DEVICE void Store(int64_t i, To v) const { to[i] = v; }
};

constexpr int64_t kPixelValues = 256;

template <typename T>
struct LookUpPixel {
  const uint8_t* pixels;
  const T* values;
  int64_t tables;
  T* to;
  HOST_DEVICE T Load(int64_t i) const {
    return values[(tables == 1 ? 0 : i % tables * kPixelValues) + pixels[i]];
  }
  HOST_DEVICE void Store(int64_t i, T v) const { to[i] = v; }
};

// Pointers that fit a kernel's arguments.  A value seldom has more than two consumers.
constexpr int kMostTerms = 32;

template <typename T>
struct Terms {
  const T* of[kMostTerms];
  int count;
};

// Count: number of terms, or 0 if only `count` has it.  Common numbers get a vectorised loop of
// their own.
template <typename T, int Count>
struct SumTerms {
  Terms<T> terms;
  T* to;
  HOST_DEVICE T Load(int64_t i) const {
    AccumulateType<T> sum = 0;
    for (int k = 0; k < (Count > 0 ? Count : terms.count); ++k) sum += terms.of[k][i];
    return static_cast<T>(sum);
  }
  HOST_DEVICE void Store(int64_t i, T v) const { to[i] = v; }
};

template <typename T, int Count>
struct AddTermsToMean {
  Terms<T> terms;
  const BatchMean* weights;
  bool begins;  // the mean holds that of the batches before
  AccumulateType<T>* mean;
  T* to;  // null: none
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const A kept = begins ? static_cast<A>(weights->kept) : 1;
    const A added = static_cast<A>(weights->added);
    A sum = kept == 0 ? 0 : kept * mean[i];
    for (int k = 0; k < (Count > 0 ? Count : terms.count); ++k) {
      sum += added * static_cast<A>(terms.of[k][i]);
    }
    mean[i] = sum;
    if (to != nullptr) to[i] = static_cast<T>(sum);
  }
};

// The loss's seed has 1 / batches.  If losses count, batch k's gradient is of a mean over c_k, and
// the step's is of a mean over their sum C_k: m_k = m_(k-1) C_(k-1) / C_k + g_k c_k / C_k.
struct NextWeights {
  const StepScalars* block;
  const double* count;  // null: none
  double batches;
  BatchMean* weights;
  HOST_DEVICE void operator()(int64_t) const {
    if (count == nullptr) {
      *weights = {0, block->first_batch ? 0.0 : 1.0, 1};
      return;
    }
    const double before = block->first_batch ? 0 : weights->counted, all = before + *count;
    const double kept = before > 0 ? before / all : block->first_batch ? 0 : 1;
    *weights = {all, kept, all > 0 ? batches * (*count / all) : 1};
  }
};

template <typename T>
absl::Status SumOnce(Stream& stream, int64_t elements, const Terms<T>& terms, T* to) {
  switch (terms.count) {
    case 2:
      return ForEach(stream, elements, SumTerms<T, 2>{terms, to});
    case 4:
      return ForEach(stream, elements, SumTerms<T, 4>{terms, to});
    default:
      return ForEach(stream, elements, SumTerms<T, 0>{terms, to});
  }
}

}  // namespace

absl::Status Fill(Stream& stream, double value, Tensor to) {
  return VisitReal(to.dtype, [&]<typename T>() {
    return ForEach(stream, to.elements(), FillWith<T>{static_cast<T>(value), to.as<T>()});
  });
}

absl::Status FillScaled(Stream& stream, double value, const double* scale, Tensor to) {
  return VisitReal(to.dtype, [&]<typename T>() {
    return ForEach(stream, to.elements(), FillProduct<T>{value, scale, to.as<T>()});
  });
}

absl::Status Convert(Stream& stream, Tensor from, Tensor to) {
  GYRE_CHECK(from.elements() == to.elements());
  return VisitReal(from.dtype, [&]<typename From>() {
    return VisitReal(to.dtype, [&]<typename To>() {
      return ForEach(stream, to.elements(), ConvertElement<From, To>{from.as<From>(), to.as<To>()});
    });
  });
}

absl::Status LookUp(Stream& stream, Tensor pixels, Tensor values, Tensor to) {
  GYRE_CHECK(pixels.elements() == to.elements());
  const int64_t tables = values.elements() / kPixelValues;
  return VisitReal(to.dtype, [&]<typename T>() {
    return ForEach(stream, to.elements(),
                   LookUpPixel<T>{pixels.as<uint8_t>(), values.as<T>(), tables, to.as<T>()});
  });
}

absl::Status AddToMean(Stream& stream, std::span<const Tensor> terms, const BatchMean* weights,
                       Tensor mean, Tensor to) {
  return VisitReal(terms.front().dtype, [&]<typename T>() -> absl::Status {
    GYRE_CHECK(mean.dtype == kDTypeOf<AccumulateType<T>>);
    auto* const sum = mean.as<AccumulateType<T>>();
    T* const rounded = to ? to.as<T>() : nullptr;
    for (size_t first = 0; first < terms.size(); first += kMostTerms) {
      Terms<T> some{};
      for (const Tensor& term :
           terms.subspan(first).first(std::min(terms.size() - first, size_t{kMostTerms}))) {
        GYRE_CHECK(term.elements() == mean.elements());
        some.of[some.count++] = term.as<T>();
      }
      const bool begins = first == 0;
      RETURN_IF_ERROR(some.count == 1
                          ? ForEach(stream, mean.elements(),
                                    AddTermsToMean<T, 1>{some, weights, begins, sum, rounded})
                          : ForEach(stream, mean.elements(),
                                    AddTermsToMean<T, 0>{some, weights, begins, sum, rounded}));
    }
    return absl::OkStatus();
  });
}

absl::Status Weigh(Stream& stream, const StepScalars* block, const double* count, int64_t batches,
                   BatchMean* weights) {
  return ForEach(stream, 1, NextWeights{block, count, static_cast<double>(batches), weights});
}

absl::Status SumOf(Stream& stream, std::span<const Tensor> terms, Tensor to) {
  return VisitReal(to.dtype, [&]<typename T>() -> absl::Status {
    Terms<T> sum{};
    for (size_t k = 0; k < terms.size(); ++k) {
      GYRE_CHECK(terms[k].elements() == to.elements());
      sum.of[sum.count++] = terms[k].as<T>();
      if (sum.count < kMostTerms && k + 1 < terms.size()) continue;
      RETURN_IF_ERROR(SumOnce(stream, to.elements(), sum, to.as<T>()));
      sum.of[0] = to.as<T>();
      sum.count = 1;
    }
    return absl::OkStatus();
  });
}

}  // namespace gyre
