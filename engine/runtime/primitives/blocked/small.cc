// Small products each on one thread: what a library does before and after one, packing its operands
// for the caches, would take as long as the product.
#include "engine/runtime/primitives/blocked/small.h"

#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/products.h"

namespace gyre {
namespace {

// Elements of a matrix: 128 KB, so that three are a small part of a second-level cache.
constexpr double kMostElements = 1 << 15;

struct MultiplyEach {
  GemmSpec spec;
  const float* a;
  const float* b;
  float* c;

  void operator()(int64_t begin, int64_t end) const {
    const GemmBatch &outer = spec.outer, &inner = spec.inner;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / inner.count, p = i % inner.count;
      Multiply(a + o * outer.a + p * inner.a, b + o * outer.b + p * inner.b,
               c + o * outer.c + p * inner.c);
    }
  }

  void Multiply(const float* from_a, const float* from_b, float* to) const {
    Products p{.rows = spec.m, .columns = spec.n, .inner = spec.k};
    p.a = from_a;
    p.a_row = spec.transpose_a ? 1 : spec.row_a();
    p.a_inner = spec.transpose_a ? spec.row_a() : 1;
    p.b = spec.transpose_b ? Turned(from_b) : from_b;
    p.b_inner = spec.transpose_b ? spec.n : spec.row_b();
    if (spec.accumulate) p.start = to, p.start_row = spec.row_c();
    p.c = to;
    p.c_row = spec.row_c();
    MultiplyAlongColumns(p);
  }

  // [k, n] from [n, k].
  const float* Turned(const float* from) const {
    float* const turned = parallel_internal::PartialValues<float>(spec.k * spec.n);
    for (int64_t j = 0; j < spec.n; ++j) {
      for (int64_t l = 0; l < spec.k; ++l) turned[l * spec.n + j] = from[j * spec.row_b() + l];
    }
    return turned;
  }
};

class SmallProducts : public Gemm {
 public:
  explicit SmallProducts(const GemmSpec& spec) : spec_(spec) {}

  size_t scratch_bytes() const override { return 0; }

  absl::Status Run(Stream& stream, const void* a, const void* b, const void*, void* c,
                   void*) const override {
    return OnTeam(stream, spec_.products(),
                  MultiplyEach{spec_, static_cast<const float*>(a), static_cast<const float*>(b),
                               static_cast<float*>(c)});
  }

 private:
  const GemmSpec spec_;
};

class SmallProductsLibrary : public PrimitiveLibrary {
 public:
  std::string_view name() const override { return "small products"; }

  // Its sums are fused.
  std::string choices() const override { return HasAvx512() ? "small products avx512\n" : ""; }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    const bool plain_sums = !spec.bias && spec.activation == Activation::kNone;
    if (!HasAvx512() || spec.dtype != DType::kF32 || spec.IsPlain() || !plain_sums) {
      return LeaveToOthers(spec);
    }
    RETURN_IF_ERROR(Validate(spec));
    const auto is_small = [](int64_t rows, int64_t columns) {
      return static_cast<double>(rows) * static_cast<double>(columns) <= kMostElements;
    };
    if (!is_small(spec.m, spec.k) || !is_small(spec.k, spec.n) || !is_small(spec.m, spec.n)) {
      return LeaveToOthers(spec);
    }
    return std::make_unique<SmallProducts>(spec);
  }

 private:
  static bool HasAvx512() { return CurrentInstructionSet() == InstructionSet::kAvx512; }
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewSmallProductsLibrary() {
  return std::make_unique<SmallProductsLibrary>();
}

}  // namespace gyre
