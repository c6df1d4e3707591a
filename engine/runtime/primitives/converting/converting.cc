// The converting library: 16-bit operations around another library's in F32.  Scratch holds the
// inner operation's own and then the converted operands, each on a 64-byte boundary.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/converting/convert.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {
namespace {

constexpr size_t Aligned(size_t bytes) { return RoundUp<size_t>(bytes, 64); }

size_t FloatBytes(int64_t elements) {
  return Aligned(static_cast<size_t>(elements) * sizeof(float));
}

// Hands out consecutive arrays of floats.
class FloatScratch {
 public:
  FloatScratch(void* scratch, size_t first_byte)
      : next_(static_cast<std::byte*>(scratch) + first_byte) {}
  float* Take(int64_t elements) {
    auto* taken = reinterpret_cast<float*>(next_);
    next_ += FloatBytes(elements);
    return taken;
  }

 private:
  std::byte* next_;
};

template <typename T>
absl::Status Widen(Stream& stream, int64_t n, const void* from, float* to) {
  return ConvertArray(stream, n, static_cast<const T*>(from), to);
}

template <typename T>
absl::Status Narrow(Stream& stream, int64_t n, const float* from, void* to) {
  return ConvertArray(stream, n, from, static_cast<T*>(to));
}

template <typename T>
class ConvertingGemm : public Gemm {
 public:
  ConvertingGemm(const GemmSpec& spec, std::unique_ptr<Gemm> inner)
      : spec_(spec), inner_(std::move(inner)), inner_scratch_(Aligned(inner_->scratch_bytes())) {}

  size_t scratch_bytes() const override {
    return inner_scratch_ + FloatBytes(spec_.m * spec_.k) +
           (spec_.packs_b ? 0 : FloatBytes(spec_.k * spec_.n)) + FloatBytes(spec_.n) +
           FloatBytes(spec_.m * spec_.n);
  }

  // b is converted once for many products.
  size_t packed_bytes() const override { return spec_.packs_b ? FloatBytes(spec_.k * spec_.n) : 0; }
  absl::Status Pack(Stream& stream, const void* b, void* packed) const override {
    if (!spec_.packs_b) return absl::OkStatus();
    return Widen<T>(stream, spec_.k * spec_.n, b, static_cast<float*>(packed));
  }

  absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                   void* scratch) const override {
    return RunWide(stream, std::nullopt, a, b, spec_.bias ? bias : nullptr, c, scratch);
  }
  absl::Status RunRows(Stream& stream, int64_t rows, const void* a, const void* b, void* c,
                       void* scratch) const override {
    return RunWide(stream, rows, a, b, nullptr, c, scratch);
  }

 private:
  // rows: of RunRows.  bias may be null.
  absl::Status RunWide(Stream& stream, std::optional<int64_t> rows, const void* a, const void* b,
                       const void* bias, void* c, void* scratch) const {
    const GemmSpec spec = rows ? OfRows(spec_, *rows) : spec_;
    FloatScratch floats(scratch, inner_scratch_);
    float* const wide_a = floats.Take(spec.m * spec.k);
    const auto* wide_b = static_cast<const float*>(b);  // from Pack
    if (!spec.packs_b) {
      float* const widened = floats.Take(spec.k * spec.n);
      RETURN_IF_ERROR(Widen<T>(stream, spec.k * spec.n, b, widened));
      wide_b = widened;
    }
    float* const wide_bias = floats.Take(spec.n);
    float* const wide_c = floats.Take(spec.m * spec.n);
    RETURN_IF_ERROR(Widen<T>(stream, spec.m * spec.k, a, wide_a));
    if (bias != nullptr) RETURN_IF_ERROR(Widen<T>(stream, spec.n, bias, wide_bias));
    if (spec.accumulate) RETURN_IF_ERROR(Widen<T>(stream, spec.m * spec.n, c, wide_c));
    RETURN_IF_ERROR(rows ? inner_->RunRows(stream, *rows, wide_a, wide_b, wide_c, scratch)
                         : inner_->Run(stream, wide_a, wide_b, wide_bias, wide_c, scratch));
    return Narrow<T>(stream, spec.m * spec.n, wide_c, c);
  }

  const GemmSpec spec_;
  const std::unique_ptr<Gemm> inner_;
  const size_t inner_scratch_;
};

// Weights keep the order that the inner operation gives them, so a layout's tag means the same.
template <typename T>
class ConvertingConv2d : public Conv2d {
 public:
  ConvertingConv2d(const Conv2dSpec& spec, std::unique_ptr<Conv2d> inner)
      : Conv2d({.bytes = inner->weight_layout().bytes / sizeof(float) * sizeof(T),
                .tag = inner->weight_layout().tag}),
        spec_(spec),
        inner_(std::move(inner)),
        inner_scratch_(Aligned(inner_->scratch_bytes())),
        x_(spec.n * spec.h * spec.w * spec.c),
        y_(spec.n * spec.out_h() * spec.out_w() * spec.filters),
        weights_(static_cast<int64_t>(inner_->weight_layout().bytes / sizeof(float))) {}

  size_t scratch_bytes() const override {
    return inner_scratch_ + FloatBytes(x_) + FloatBytes(weights_) + FloatBytes(y_) +
           FloatBytes(spec_.filters);
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void* scratch) const override {
    const Wide wide = Take(scratch);
    RETURN_IF_ERROR(Widen<T>(stream, x_, x, wide.x));
    RETURN_IF_ERROR(Widen<T>(stream, weights_, weights, wide.weights));
    if (spec_.bias) RETURN_IF_ERROR(Widen<T>(stream, spec_.filters, bias, wide.bias));
    RETURN_IF_ERROR(inner_->Forward(stream, wide.x, wide.weights, wide.bias, wide.y, scratch));
    return Narrow<T>(stream, y_, wide.y, y);
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    const Wide wide = Take(scratch);
    RETURN_IF_ERROR(Widen<T>(stream, y_, dy, wide.y));
    RETURN_IF_ERROR(Widen<T>(stream, weights_, weights, wide.weights));
    RETURN_IF_ERROR(inner_->BackwardData(stream, wide.y, wide.weights, wide.x, scratch));
    return Narrow<T>(stream, x_, wide.x, dx);
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    const Wide wide = Take(scratch);
    RETURN_IF_ERROR(Widen<T>(stream, x_, x, wide.x));
    RETURN_IF_ERROR(Widen<T>(stream, y_, dy, wide.y));
    RETURN_IF_ERROR(
        inner_->BackwardWeights(stream, wide.x, wide.y, wide.weights, wide.bias, scratch));
    RETURN_IF_ERROR(Narrow<T>(stream, weights_, wide.weights, dweights));
    if (!spec_.bias) return absl::OkStatus();
    return Narrow<T>(stream, spec_.filters, wide.bias, dbias);
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    const auto* from = static_cast<const T*>(canonical);
    const std::vector<float> wide(from, from + spec_.weights());
    std::vector<float> packed(static_cast<size_t>(weights_));
    RETURN_IF_ERROR(inner_->Pack(wide.data(), packed.data()));
    Round(packed, opaque);
    return absl::OkStatus();
  }

  absl::Status Unpack(const void* opaque, void* canonical) const override {
    const auto* from = static_cast<const T*>(opaque);
    const std::vector<float> packed(from, from + weights_);
    std::vector<float> wide(static_cast<size_t>(spec_.weights()));
    RETURN_IF_ERROR(inner_->Unpack(packed.data(), wide.data()));
    Round(wide, canonical);
    return absl::OkStatus();
  }

 private:
  struct Wide {
    float *x, *weights, *y, *bias;
  };

  static void Round(const std::vector<float>& from, void* to) {
    std::transform(from.begin(), from.end(), static_cast<T*>(to),
                   [](float value) { return T(value); });
  }

  Wide Take(void* scratch) const {
    FloatScratch floats(scratch, inner_scratch_);
    Wide wide;
    wide.x = floats.Take(x_);
    wide.weights = floats.Take(weights_);
    wide.y = floats.Take(y_);
    wide.bias = floats.Take(spec_.filters);
    return wide;
  }

  const Conv2dSpec spec_;
  const std::unique_ptr<Conv2d> inner_;
  const size_t inner_scratch_;
  const int64_t x_, y_, weights_;  // elements
};

template <typename T>
std::unique_ptr<Gemm> Convert(const GemmSpec& spec, std::unique_ptr<Gemm> inner) {
  return std::make_unique<ConvertingGemm<T>>(spec, std::move(inner));
}

template <typename T>
std::unique_ptr<Conv2d> Convert(const Conv2dSpec& spec, std::unique_ptr<Conv2d> inner) {
  return std::make_unique<ConvertingConv2d<T>>(spec, std::move(inner));
}

class ConvertingLibrary : public PrimitiveLibrary {
 public:
  explicit ConvertingLibrary(std::vector<const PrimitiveLibrary*> inner)
      : inner_(std::move(inner)) {}

  std::string_view name() const override { return "converting"; }
  // All loops of our own on a CPU, not those of conversions alone.
  std::string choices() const override {
    return absl::StrCat("loops ", std::string(InstructionSetName(CurrentInstructionSet())), "\n");
  }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    // Parts of arrays would have to be converted row by row.
    GemmSpec assigns = spec;
    assigns.accumulate = false;
    return assigns.IsPlain() ? PrepareAround<Gemm>(spec) : LeaveToOthers(spec);
  }
  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    return PrepareAround<Conv2d>(spec);
  }

 private:
  template <typename Op, typename Spec>
  absl::StatusOr<std::unique_ptr<Op>> PrepareAround(const Spec& spec) const {
    if (spec.dtype != DType::kF16 && spec.dtype != DType::kBF16) return LeaveToOthers(spec);
    Spec wide = spec;
    wide.dtype = DType::kF32;
    if constexpr (std::is_same_v<Spec, GemmSpec>) wide.packs_b = false;  // it is done here
    RETURN_IF_ERROR(Validate(spec));
    for (const PrimitiveLibrary* library : inner_) {
      absl::StatusOr<std::unique_ptr<Op>> inner = library->Prepare(wide);
      if (absl::IsUnimplemented(inner.status())) continue;
      RETURN_IF_ERROR(inner.status());
      return spec.dtype == DType::kF16 ? Convert<Half>(spec, *std::move(inner))
                                       : Convert<BFloat16>(spec, *std::move(inner));
    }
    return LeaveToOthers(spec);
  }

  const std::vector<const PrimitiveLibrary*> inner_;
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewConvertingLibrary(std::vector<const PrimitiveLibrary*> inner) {
  return std::make_unique<ConvertingLibrary>(std::move(inner));
}

}  // namespace gyre
