// The reference library: GEMM, and the door to the convolution and pooling beside it.
#include "engine/runtime/primitives/reference/reference.h"

#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/activation.h"

namespace gyre {
namespace {

// So many terms of a product are added in AccumulateType, and those sums in F64.
constexpr int64_t kTerms = 1024;

// An element of c; i counts them row by row, and products from inner to outer.
template <typename T, typename C>
struct GemmElement {
  using A = AccumulateType<T>;
  int64_t m, n, k;
  int64_t a_row, a_k, b_k, b_column, c_row;  // strides
  GemmBatch outer, inner;
  Activation activation;
  bool accumulate;
  const T* a;
  const T* b;
  const T* bias;  // may be null
  C* c;

  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / n % m, column = i % n, product = i / n / m;
    const int64_t of_outer = product / inner.count, of_inner = product % inner.count;
    const T* from_a = a + of_outer * outer.a + of_inner * inner.a + row * a_row;
    const T* from_b = b + of_outer * outer.b + of_inner * inner.b + column * b_column;
    C* const to = c + of_outer * outer.c + of_inner * inner.c + row * c_row + column;
    double total = 0;
    for (int64_t first = 0; first < k; first += kTerms) {
      const int64_t last = first + kTerms < k ? first + kTerms : k;
      A terms = 0;
      for (int64_t p = first; p < last; ++p) {
        terms += static_cast<A>(from_a[p * a_k]) * static_cast<A>(from_b[p * b_k]);
      }
      total += static_cast<double>(terms);
    }
    A sum = static_cast<A>(total);
    if (bias != nullptr) sum += static_cast<A>(bias[column]);
    if (accumulate) sum += static_cast<A>(*to);
    *to = static_cast<C>(Activate(activation, sum));
  }
};

template <typename T>
class ReferenceGemm : public UnpreparedGemm {
 public:
  using UnpreparedGemm::UnpreparedGemm;

 private:
  absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                       const void* bias, void* c) const override {
    if (spec.wide_c) return RunInto<AccumulateType<T>>(stream, spec, a, b, bias, c);
    return RunInto<T>(stream, spec, a, b, bias, c);
  }

  template <typename C>
  static absl::Status RunInto(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                              const void* bias, void* c) {
    return ForEach(stream, spec.products() * spec.m * spec.n,
                   GemmElement<T, C>{.m = spec.m,
                                     .n = spec.n,
                                     .k = spec.k,
                                     .a_row = spec.transpose_a ? 1 : spec.row_a(),
                                     .a_k = spec.transpose_a ? spec.row_a() : 1,
                                     .b_k = spec.transpose_b ? 1 : spec.row_b(),
                                     .b_column = spec.transpose_b ? spec.row_b() : 1,
                                     .c_row = spec.row_c(),
                                     .outer = spec.outer,
                                     .inner = spec.inner,
                                     .activation = spec.activation,
                                     .accumulate = spec.accumulate,
                                     .a = static_cast<const T*>(a),
                                     .b = static_cast<const T*>(b),
                                     .bias = static_cast<const T*>(bias),
                                     .c = static_cast<C*>(c)});
  }
};

class ReferenceLibrary : public PrimitiveLibrary {
 public:
  using PrimitiveLibrary::Prepare;  // of what layers have kernels for
  std::string_view name() const override { return "reference"; }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    RETURN_IF_ERROR(Accept(spec));
    return VisitReal(spec.dtype, [&]<typename T>() -> std::unique_ptr<Gemm> {
      return std::make_unique<ReferenceGemm<T>>(spec);
    });
  }

  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    RETURN_IF_ERROR(Accept(spec));
    return PrepareReferenceConv2d(spec);
  }

  absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const override {
    RETURN_IF_ERROR(Accept(spec));
    return PrepareReferencePool2d(spec);
  }

 private:
  template <typename Spec>
  absl::Status Accept(const Spec& spec) const {
    return IsReal(spec.dtype) ? Validate(spec) : LeaveToOthers(spec);
  }
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewReferenceLibrary() {
  return std::make_unique<ReferenceLibrary>();
}

}  // namespace gyre
