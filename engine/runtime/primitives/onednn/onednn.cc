// The oneDNN library: GEMM, and the door to the convolution beside it.
#include "engine/runtime/primitives/onednn/onednn.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/primitives/onednn/bf16.h"
#include "engine/runtime/primitives/onednn/pointwise.h"

namespace gyre {
namespace {

using dnnl::memory;

// How much of k oneDNN is given at a time.  It goes down all of it in strips of 64 columns, and
// where b has long rows each is another page: of few rows of a (the gradient of a dense layer's
// input) that is most of the time.  512 pages stay in a second-level TLB of 1,024 or more for the
// next strip.
constexpr int64_t kPanelDepth = 512;
bool TakesPanels(const GemmSpec& spec) {
  constexpr int64_t kFewRows = 64, kPageElements = 4096 / sizeof(float);
  const bool strided = !spec.transpose_b && spec.n >= kPageElements;
  // Sums are rounded to the type of c in between, and what a panel leaves is added to without bias.
  const bool sums = spec.dtype == DType::kF32 && !spec.bias && !spec.transpose_a;
  return strided && sums && spec.m <= kFewRows;
}

bool UsesAmx(const GemmSpec& spec, int threads) {
  return AmxTakes(spec, threads) && CurrentBf16Unit() == Bf16Unit::kAmx;
}

// Whether a convolution of F32 is faster as products, whatever the batch, and in training or not.
// With fewer channels oneDNN's convolution is as fast, and with a bias, which it adds and sums in
// passing.  So it is where pixels do not lie a power of two apart, and so in the same lines of
// caches.
bool IsProduct(const Conv2dSpec& spec) {
  constexpr int64_t kFew = 64, kMany = 256;
  return IsPointwise(spec) && std::min(spec.c, spec.filters) >= kFew &&
         std::max(spec.c, spec.filters) >= kMany &&
         std::has_single_bit(static_cast<uint64_t>(spec.c)) &&
         std::has_single_bit(static_cast<uint64_t>(spec.filters));
}

// By oneDNN's plain function: its primitive (2.6) takes few strides, and is made for its extents.
dnnl_status_t MultiplyPart(const GemmSpec& spec, int64_t product, const float* a, const float* b,
                           float* c) {
  const GemmBatch &outer = spec.outer, &inner = spec.inner;
  const int64_t i = product / inner.count, j = product % inner.count;
  return dnnl_sgemm(spec.transpose_a ? 'T' : 'N', spec.transpose_b ? 'T' : 'N', spec.m, spec.n,
                    spec.k, /*alpha=*/1, a + i * outer.a + j * inner.a, spec.row_a(),
                    b + i * outer.b + j * inner.b, spec.row_b(),
                    /*beta=*/spec.accumulate ? 1 : 0, c + i * outer.c + j * inner.c, spec.row_c());
}

// Many products are shared out among the threads, each as one thread makes it.  Few are made
// outside any parallel region, even one that `if` leaves a single thread: in it libgomp starts new
// threads for each region of oneDNN's.
absl::Status MultiplyParts(Stream& stream, const OneDnnContext& context, const std::string& what,
                           const GemmSpec& spec, const void* a, const void* b, void* c) {
  return stream.Call([=, &what] {
    const ScopedThreads threads(context.threads);
    const int64_t products = spec.products();
    std::atomic<dnnl_status_t> result = dnnl_success;
    const auto multiply = [&](int64_t i) {
      const dnnl_status_t status =
          MultiplyPart(spec, i, static_cast<const float*>(a), static_cast<const float*>(b),
                       static_cast<float*>(c));
      if (status != dnnl_success) result = status;
    };
    if (products < context.threads) {
      for (int64_t i = 0; i < products; ++i) multiply(i);
    } else {
#pragma omp parallel for
      for (int64_t i = 0; i < products; ++i) multiply(i);
    }
    if (result == dnnl_success) return absl::OkStatus();
    return OneDnnError(what, dnnl::error(result, "dnnl_sgemm failed"));
  });
}

// A product of BF16 by AMX takes b packed where the spec asks for it: all of k in one panel.
class OneDnnGemm : public Gemm {
 public:
  OneDnnGemm(const OneDnnContext& context, const GemmSpec& spec)
      : OneDnnGemm(context, spec, std::nullopt) {}

  // packed: how b is stored, of a product whose rows this one has a part of.
  OneDnnGemm(const OneDnnContext& context, const GemmSpec& spec, std::optional<memory::desc> packed)
      : context_(context),
        spec_(spec),
        what_(ToString(spec)),
        amx_(UsesAmx(spec, context.threads)),
        bias_(Matrix(1, spec.n, spec.n, false)),
        c_(Matrix(spec.m, spec.n, spec.n, false)) {
    const int64_t depth = TakesPanels(spec) ? kPanelDepth : std::max<int64_t>(spec.k, 1);
    for (int64_t first = 0; first < spec.k; first += depth) {
      const int64_t k = std::min(depth, spec.k - first);
      Panel& panel = panels_.emplace_back();
      panel.first = first;
      panel.a = Matrix(spec.m, k, spec.transpose_a ? spec.m : spec.k, spec.transpose_a);
      panel.b = Matrix(k, spec.n, spec.transpose_b ? spec.k : spec.n, spec.transpose_b);
      if (amx_ && spec.packs_b) {
        stored_b_ = panel.b;
        panel.b = packed.value_or(
            memory::desc({k, spec.n}, OneDnnType(spec.dtype), memory::format_tag::any));
      }
      dnnl::primitive_attr attributes = OneDnnAttributes();
      if (first > 0 || spec.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum();
        attributes.set_post_ops(sum);
      }
      const dnnl::matmul::desc desc = spec.bias ? dnnl::matmul::desc(panel.a, panel.b, bias_, c_)
                                                : dnnl::matmul::desc(panel.a, panel.b, c_);
      dnnl::matmul::primitive_desc primitive(desc, attributes, context.engine);
      // Products without a name of their own for it use AMX, too; the reference is slow.
      if (!amx_ && spec.dtype == DType::kBF16 && CurrentBf16Unit() == Bf16Unit::kAmx) {
        primitive = Without(std::move(primitive), {"amx", "gemm", "ref"});
      }
      panel.b = primitive.weights_desc();
      panel.matmul = dnnl::matmul(primitive);
      panel.scratchpad = primitive.scratchpad_desc();
    }
  }

  size_t scratch_bytes() const override {
    size_t bytes = 0;
    for (const Panel& panel : panels_) bytes = std::max(bytes, panel.scratchpad.get_size());
    return bytes;
  }

  size_t packed_bytes() const override {
    return stored_b_.has_value() ? panels_.front().b.get_size() : 0;
  }
  absl::Status Pack(Stream& stream, const void* b, void* packed) const override {
    if (!stored_b_.has_value()) return absl::OkStatus();
    return EnqueueOneDnn(stream, context_, what_, [&] {
      const memory from = OneDnnMemory(*stored_b_, context_, b);
      const memory to = OneDnnMemory(panels_.front().b, context_, packed);
      std::vector<BoundPrimitive> bound;
      bound.emplace_back(dnnl::reorder(from, to),
                         OneDnnArguments{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
      return bound;
    });
  }

  absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                   void* scratch) const override {
    const auto bind = [&] { return Bind(a, b, bias, c, scratch); };
    return EnqueueOneDnn(stream, context_, what_, bind, [this, c] {
      ActivateInPlace(spec_.activation, spec_.dtype, spec_.m * spec_.n, c);
    });
  }

  absl::Status RunRows(Stream& stream, int64_t rows, const void* a, const void* b, void* c,
                       void* scratch) const override {
    const GemmSpec spec = OfRows(spec_, rows);
    if (rows == 0 && spec.accumulate) return absl::OkStatus();
    if (rows == 0) {  // oneDNN's kernels disagree on what it means
      return stream.Call([=] {
        const auto bytes = static_cast<size_t>(spec.m * spec.n) * SizeOf(spec.dtype);
        if (bytes > 0) std::memset(c, 0, bytes);
        return absl::OkStatus();
      });
    }
    if (spec.dtype == DType::kF32) return MultiplyParts(stream, context_, what_, spec, a, b, c);
    return stream.Call([=, this] {
      std::optional<memory::desc> packed;
      if (stored_b_.has_value()) packed = panels_.front().b;
      ASSIGN_OR_RETURN(const auto part, PrepareOneDnn<OneDnnGemm>(context_, spec, packed));
      // It may be another kernel.
      std::vector<std::byte> more;
      void* at = scratch;
      if (part->scratch_bytes() > scratch_bytes()) {
        more.resize(part->scratch_bytes() + 64);
        at = more.data() + (64 - reinterpret_cast<uintptr_t>(more.data()) % 64);
      }
      return RunOneDnn(context_, what_, [&](dnnl::stream& now) {
        for (const BoundPrimitive& bound : part->Bind(a, b, nullptr, c, at)) bound.Run(now);
      });
    });
  }

 private:
  // k from `first` on; all but the first add to c.
  struct Panel {
    int64_t first = 0;
    memory::desc a, b, scratchpad;
    dnnl::matmul matmul;
  };

  std::vector<BoundPrimitive> Bind(const void* a, const void* b, const void* bias, void* c,
                                   void* scratch) const {
    std::vector<BoundPrimitive> bound;
    for (const Panel& panel : panels_) {
      // Later panels are F32 and not transposed.
      OneDnnArguments arguments = {
          {DNNL_ARG_SRC,
           OneDnnMemory(panel.a, context_, static_cast<const float*>(a) + panel.first)},
          {DNNL_ARG_WEIGHTS,
           OneDnnMemory(panel.b, context_, static_cast<const float*>(b) + panel.first * spec_.n)},
          {DNNL_ARG_DST, OneDnnMemory(c_, context_, c)},
          {DNNL_ARG_SCRATCHPAD, OneDnnMemory(panel.scratchpad, context_, scratch)}};
      if (spec_.bias) arguments.emplace_back(DNNL_ARG_BIAS, OneDnnMemory(bias_, context_, bias));
      bound.emplace_back(panel.matmul, std::move(arguments));
    }
    return bound;
  }

  // A matrix of rows x columns, stored as its transpose if so said, `stride` elements from one row
  // of what is stored to the next.
  memory::desc Matrix(int64_t rows, int64_t columns, int64_t stride, bool transposed) const {
    return {{rows, columns},
            OneDnnType(spec_.dtype),
            transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
  }

  const OneDnnContext context_;
  const GemmSpec spec_;
  const std::string what_;
  const bool amx_;
  const memory::desc bias_, c_;
  std::optional<memory::desc> stored_b_;  // there is where b is packed
  std::vector<Panel> panels_;
};

// Products of parts of arrays.
class OneDnnPartsGemm : public UnpreparedGemm {
 public:
  OneDnnPartsGemm(const OneDnnContext& context, const GemmSpec& spec)
      : UnpreparedGemm(spec), context_(context), what_(ToString(spec)) {}

 private:
  absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                       const void*, void* c) const override {
    return MultiplyParts(stream, context_, what_, spec, a, b, c);
  }

  const OneDnnContext context_;
  const std::string what_;
};

// Products of F32, all by oneDNN's plain function.
class PlainProducts : public PrimitiveLibrary {
 public:
  explicit PlainProducts(const OneDnnContext& context) : context_(context) {}
  std::string_view name() const override { return "onednn plain products"; }
  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    return std::make_unique<OneDnnPartsGemm>(context_, spec);
  }

 private:
  const OneDnnContext context_;
};

// AMX is asked for by name, so that a machine without it stays with AVX-512 and AVX2.  oneDNN asks
// Linux for the tiles' registers itself, and goes without AMX where it gets none.  The choice is
// the process's, before its first operation; oneDNN's variables for it still rule.
void AskForAmx() {
  for (const char* const variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (std::getenv(variable) != nullptr) return;
  }
  // An error says that there was an operation already, after this or somebody else's choice.
  (void)dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_amx);
}

OneDnnContext NewContext(int threads) {
  AskForAmx();
  return {{dnnl::engine::kind::cpu, 0}, threads};
}

double Product(std::initializer_list<int64_t> extents) {
  double product = 1;
  for (const int64_t extent : extents) product *= static_cast<double>(extent);
  return product;
}

// oneDNN 2.6 counts with 32 bits, also after rounding channels up to its blocks (16 from 1), and
// divides by what overflowed.
constexpr double kMostCounted = 0x1p31 / 16;

// The largest of what oneDNN counts: extents, and elements of an image and of the weights.
double Largest(const GemmSpec& spec) {
  return static_cast<double>(std::max({spec.m, spec.n, spec.k}));
}

double Largest(const Conv2dSpec& spec) {
  const Window2d& window = spec.window;
  const int64_t padded_h = window.padding_top + spec.h + window.padding_bottom;
  const int64_t padded_w = window.padding_left + spec.w + window.padding_right;
  const int64_t widest =
      std::max({spec.n, window.stride_h, window.stride_w, window.dilation_h, window.dilation_w});
  return std::max(
      {Product({widest}), Product({padded_h, padded_w, spec.c}),
       Product({spec.out_h(), spec.out_w(), spec.filters}),
       Product({spec.filters, spec.c / spec.groups, spec.window.kernel_h, spec.window.kernel_w})});
}

class OneDnnLibrary : public PrimitiveLibrary {
 public:
  explicit OneDnnLibrary(int threads) : context_(NewContext(threads)) {}

  std::string_view name() const override { return "onednn"; }

  // All that its choice of kernels depends on beside the spec.
  std::string choices() const override {
    const dnnl_version_t* version = dnnl::version();
    return absl::StrFormat("onednn %d.%d.%d, instruction set %#x, %d threads\n", version->major,
                           version->minor, version->patch,
                           static_cast<int>(dnnl::get_effective_cpu_isa()), context_.threads);
  }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    RETURN_IF_ERROR(Accept(spec, {spec.m, spec.n, spec.k, spec.products()}));
    // Without BF16 instructions, F32's are faster: see bf16.cc.
    if (spec.dtype == DType::kBF16 && CurrentBf16Unit() == Bf16Unit::kNone) {
      return LeaveToOthers(spec);
    }
    GemmSpec assigns = spec;
    assigns.accumulate = false;
    if (spec.IsPlain() || (assigns.IsPlain() && TakesPanels(spec))) {
      return PrepareOneDnn<OneDnnGemm>(context_, spec);
    }
    if (spec.dtype != DType::kF32 || spec.bias || spec.activation != Activation::kNone) {
      return LeaveToOthers(spec);
    }
    return std::make_unique<OneDnnPartsGemm>(context_, spec);
  }

  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    if (spec.dtype == DType::kBF16) return PrepareBf16(spec, Bf16WayOf(spec, CurrentBf16Unit()));
    RETURN_IF_ERROR(Accept(spec, {spec.h, spec.w, spec.c, spec.filters}));
    if (IsProduct(spec)) return PreparePointwise(spec, context_.threads, plain_products_);
    return PrepareOneDnnConv2d(context_, spec);
  }

  // Precondition: a spec of BF16.
  absl::StatusOr<std::unique_ptr<Conv2d>> PrepareBf16(const Conv2dSpec& spec, Bf16Way way) const {
    RETURN_IF_ERROR(Accept(spec, {spec.h, spec.w, spec.c, spec.filters}));
    if (way == Bf16Way::kConvolution) return PrepareOneDnnConv2d(context_, spec);
    if (way == Bf16Way::kF32 || !IsPointwise(spec)) return LeaveToOthers(spec);
    return PreparePointwise(spec, context_.threads, *this);
  }

 private:
  // Operands with an extent of 0 are left to others: oneDNN's kernels disagree on what they mean.
  // So are the largest.
  template <typename Spec>
  absl::Status Accept(const Spec& spec, std::initializer_list<int64_t> extents) const {
    const bool known = spec.dtype == DType::kF32 || spec.dtype == DType::kBF16;
    if (!known || std::min(extents) == 0) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    return Largest(spec) < kMostCounted ? absl::OkStatus() : LeaveToOthers(spec);
  }

  const OneDnnContext context_;
  const PlainProducts plain_products_{context_};
};

class Bf16WayLibrary : public PrimitiveLibrary {
 public:
  Bf16WayLibrary(int threads, Bf16Way way) : onednn_(threads), way_(way) {}

  std::string_view name() const override {
    return way_ == Bf16Way::kConvolution ? "onednn convolution" : "onednn products";
  }
  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    RETURN_IF_ERROR(Validate(spec));
    return spec.dtype == DType::kBF16 ? onednn_.PrepareBf16(spec, way_) : LeaveToOthers(spec);
  }

 private:
  const OneDnnLibrary onednn_;
  const Bf16Way way_;
};

class AmxProductsLibrary : public PrimitiveLibrary {
 public:
  explicit AmxProductsLibrary(int threads) : context_(NewContext(threads)) {}

  std::string_view name() const override { return "amx products"; }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    RETURN_IF_ERROR(Validate(spec));
    GemmSpec assigns = spec;
    assigns.accumulate = false;
    const bool takes = UsesAmx(spec, context_.threads) && assigns.IsPlain() &&
                       std::min({spec.m, spec.n, spec.k}) > 0 && Largest(spec) < kMostCounted;
    return takes ? PrepareOneDnn<OneDnnGemm>(context_, spec) : LeaveToOthers(spec);
  }

 private:
  const OneDnnContext context_;
};

}  // namespace

BoundPrimitive::BoundPrimitive(dnnl::primitive primitive, OneDnnArguments arguments)
    : primitive_(std::move(primitive)), memories_(std::move(arguments)) {
  for (const auto& [argument, memory] : memories_) arguments_.push_back({argument, memory.get()});
}

void BoundPrimitive::Run(const dnnl::stream& stream) const {
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(arguments_.size()),
                             arguments_.data()),
      "could not execute a primitive");
}

void ActivateInPlace(Activation activation, DType dtype, int64_t n, void* values) {
  if (activation == Activation::kNone) return;
  const auto activate = [activation, n]<typename T>(T* v) {
#pragma omp parallel for simd
    for (int64_t i = 0; i < n; ++i) v[i] = static_cast<T>(Activate<float>(activation, v[i]));
  };
  if (dtype == DType::kBF16) {
    activate(static_cast<BFloat16*>(values));
  } else {
    activate(static_cast<float*>(values));
  }
}

absl::Status OneDnnError(const std::string& what, const dnnl::error& error) {
  const std::string message = absl::StrCat(what, ": oneDNN: ", error.what());
  switch (error.status) {
    case dnnl_unimplemented:
      return absl::UnimplementedError(message);
    case dnnl_out_of_memory:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

dnnl::primitive_attr OneDnnAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

std::unique_ptr<PrimitiveLibrary> NewOneDnnLibrary(int threads) {
  return std::make_unique<OneDnnLibrary>(threads);
}
std::unique_ptr<PrimitiveLibrary> NewBf16WayLibrary(int threads, Bf16Way way) {
  return std::make_unique<Bf16WayLibrary>(threads, way);
}
std::unique_ptr<PrimitiveLibrary> NewAmxProductsLibrary(int threads) {
  return std::make_unique<AmxProductsLibrary>(threads);
}

}  // namespace gyre
