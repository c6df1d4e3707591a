#include "engine/training/net/net_kernels.h"

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct FillWith {
  T value;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = value; }
};

constexpr int64_t kPixelValues = 256;

template <typename T>
struct LookUpPixel {
  const uint8_t* pixels;
  const T* values;
  int64_t tables;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const {
    to[i] = values[(tables == 1 ? 0 : i % tables * kPixelValues) + pixels[i]];
  }
};

// What a kernel's arguments hold of pointers; a value has seldom more than two consumers.
constexpr int kMostTerms = 32;

template <typename T>
struct SumTerms {
  const T* terms[kMostTerms];
  int count;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const {
    AccumulateType<T> sum = 0;
    for (int k = 0; k < count; ++k) sum += terms[k][i];
    to[i] = static_cast<T>(sum);
  }
};

}  // namespace

absl::Status Fill(Stream& stream, double value, Tensor to) {
  return VisitReal(to.dtype, [&]<typename T>() {
    return ForEach(stream, to.elements(), FillWith<T>{static_cast<T>(value), to.as<T>()});
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

absl::Status SumOf(Stream& stream, std::span<const Tensor> terms, Tensor to) {
  return VisitReal(to.dtype, [&]<typename T>() -> absl::Status {
    SumTerms<T> sum{.terms = {}, .count = 0, .to = to.as<T>()};
    for (size_t k = 0; k < terms.size(); ++k) {
      GYRE_CHECK(terms[k].elements() == to.elements());
      sum.terms[sum.count++] = terms[k].as<T>();
      if (sum.count < kMostTerms && k + 1 < terms.size()) continue;
      RETURN_IF_ERROR(ForEach(stream, to.elements(), sum));
      sum.terms[0] = sum.to;
      sum.count = 1;
    }
    return absl::OkStatus();
  });
}

}  // namespace gyre
