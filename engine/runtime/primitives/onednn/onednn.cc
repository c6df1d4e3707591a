// The oneDNN library: GEMM, and the door to the convolution beside it.
#include "engine/runtime/primitives/onednn/onednn.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {
namespace {

using dnnl::memory;

class OneDnnGemm : public Gemm {
 public:
  OneDnnGemm(const OneDnnContext& context, const GemmSpec& spec)
      : context_(context),
        spec_(spec),
        what_(ToString(spec)),
        a_(Matrix(spec.dtype, spec.m, spec.k, spec.transpose_a)),
        b_(Matrix(spec.dtype, spec.k, spec.n, spec.transpose_b)),
        bias_(Matrix(spec.dtype, 1, spec.n, false)),
        c_(Matrix(spec.dtype, spec.m, spec.n, false)) {
    const dnnl::matmul::desc desc =
        spec.bias ? dnnl::matmul::desc(a_, b_, bias_, c_) : dnnl::matmul::desc(a_, b_, c_);
    const dnnl::matmul::primitive_desc primitive(desc, OneDnnAttributes(), context.engine);
    matmul_ = dnnl::matmul(primitive);
    scratchpad_ = primitive.scratchpad_desc();
  }

  size_t scratch_bytes() const override { return scratchpad_.get_size(); }

  absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                   void* scratch) const override {
    const auto bind = [&] {
      OneDnnArguments arguments = {
          {DNNL_ARG_SRC, OneDnnMemory(a_, context_, a)},
          {DNNL_ARG_WEIGHTS, OneDnnMemory(b_, context_, b)},
          {DNNL_ARG_DST, OneDnnMemory(c_, context_, c)},
          {DNNL_ARG_SCRATCHPAD, OneDnnMemory(scratchpad_, context_, scratch)}};
      if (spec_.bias) arguments.emplace_back(DNNL_ARG_BIAS, OneDnnMemory(bias_, context_, bias));
      return std::vector{BoundPrimitive(matmul_, std::move(arguments))};
    };
    return EnqueueOneDnn(stream, context_, what_, bind, [this, c] {
      ActivateInPlace(spec_.activation, spec_.dtype, spec_.m * spec_.n, c);
    });
  }

 private:
  // A matrix of rows x columns, stored as its transpose if so said.
  static memory::desc Matrix(DType dtype, int64_t rows, int64_t columns, bool transposed) {
    return {{rows, columns},
            OneDnnType(dtype),
            transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
  }

  const OneDnnContext context_;
  const GemmSpec spec_;
  const std::string what_;
  const memory::desc a_, b_, bias_, c_;
  memory::desc scratchpad_;
  dnnl::matmul matmul_;
};

// Some of oneDNN 2.6's AMX kernels for BF16 use tiles that they have not configured, which is an
// illegal instruction.  The choice is the process's, before its first operation; oneDNN's variable
// for it still rules.
void AvoidAmx() {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) return;
  // An error says that there was an operation already, after this or somebody else's choice.
  (void)dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
}

double Product(std::initializer_list<int64_t> extents) {
  double product = 1;
  for (const int64_t extent : extents) product *= static_cast<double>(extent);
  return product;
}

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

// Log-softmax it leaves: oneDNN 2.6 errs by 3e-6, sixty times a rounding, which would show in every
// loss.
class OneDnnLibrary : public PrimitiveLibrary {
 public:
  explicit OneDnnLibrary(int threads) : context_{{dnnl::engine::kind::cpu, 0}, threads} {
    AvoidAmx();
  }

  std::string_view name() const override { return "onednn"; }

  // All that its choice of kernels depends on beside the spec.
  std::string choices() const override {
    const dnnl_version_t* version = dnnl::version();
    return absl::StrFormat("onednn %d.%d.%d, instruction set %#x, %d threads\n", version->major,
                           version->minor, version->patch,
                           static_cast<int>(dnnl::get_effective_cpu_isa()), context_.threads);
  }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    RETURN_IF_ERROR(Accept(spec, {spec.m, spec.n, spec.k}));
    return PrepareOneDnn<OneDnnGemm>(context_, spec);
  }

  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    RETURN_IF_ERROR(Accept(spec, {spec.h, spec.w, spec.c, spec.filters}));
    return PrepareOneDnnConv2d(context_, spec);
  }

 private:
  // Operands with an extent of 0 are left to others: oneDNN's kernels disagree on what they mean.
  // So are the largest: oneDNN 2.6 counts with 32 bits, also after rounding channels up to its
  // blocks (16 from 1), and divides by what overflowed.
  template <typename Spec>
  absl::Status Accept(const Spec& spec, std::initializer_list<int64_t> extents) const {
    constexpr double kMost = 0x1p31 / 16;
    const bool known = spec.dtype == DType::kF32 || spec.dtype == DType::kBF16;
    if (!known || std::min(extents) == 0) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    return Largest(spec) < kMost ? absl::OkStatus() : LeaveToOthers(spec);
  }

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

}  // namespace gyre
