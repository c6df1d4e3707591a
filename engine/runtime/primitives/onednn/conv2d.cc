// Convolution by oneDNN.  One pass chooses how weights are stored; the others may want them
// otherwise and then reorder them through scratch, so that a parameter and its gradient always have
// one layout.
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/primitives/onednn/bf16.h"
#include "engine/runtime/primitives/onednn/layout.h"
#include "engine/runtime/primitives/onednn/onednn.h"

namespace gyre {
namespace {

using dnnl::memory;
using Bound = std::vector<BoundPrimitive>;

size_t AlignedSize(const memory::desc& desc) { return RoundUp<size_t>(desc.get_size(), 64); }

// Ranks whose shares of a batch differ must store weights alike, so the layout is the one that a
// pass wants for this batch, whatever the spec's.  oneDNN's choice is the same from a few images
// on.
constexpr int64_t kLayoutBatch = 32;

// oneDNN adds a bias's gradient up in float, pixel by pixel: of so many it keeps four digits.
constexpr int64_t kMostBiasPixels = 8192;

// Descriptors of what a convolution of `n` images is made of.
struct OperandDescriptors {
  OperandDescriptors(const Conv2dSpec& spec, int64_t n)
      : type(OneDnnType(spec.dtype)),
        x(Image(n, spec.c, spec.h, spec.w)),
        y(Image(n, spec.filters, spec.out_h(), spec.out_w())),
        weight_dims{spec.filters, spec.c, spec.window.kernel_h, spec.window.kernel_w},
        strides{spec.window.stride_h, spec.window.stride_w},
        dilations{spec.window.dilation_h - 1, spec.window.dilation_w - 1},
        before{spec.window.padding_top, spec.window.padding_left},
        after{spec.window.padding_bottom, spec.window.padding_right} {
    if (spec.groups > 1) {
      weight_dims = {spec.groups, spec.filters / spec.groups, spec.c / spec.groups,
                     spec.window.kernel_h, spec.window.kernel_w};
    }
    canonical = memory::desc(
        weight_dims, type, spec.groups > 1 ? memory::format_tag::abcde : memory::format_tag::abcd);
    any = memory::desc(weight_dims, type, memory::format_tag::any);
    if (spec.bias) bias = memory::desc({spec.filters}, type, memory::format_tag::a);
  }

  memory::desc Image(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return {{n, c, h, w}, type, memory::format_tag::nhwc};
  }

  memory::data_type type;
  memory::desc x, y, canonical, any, bias;  // bias: empty if there is none
  memory::dims weight_dims, strides, dilations, before, after;
};

// One pass: a convolution and, where it wants its weights (or makes their gradient) in another
// layout than they are stored in, the reorder between the two.
struct ConvolutionPass {
  dnnl::primitive convolution;
  memory::desc scratchpad;
  memory::desc weights;  // as the convolution has them
  std::optional<dnnl::reorder> reorder = {};
  memory::desc reorder_scratchpad = {};

  // Scratch: the scratchpad (the two primitives take turns), then the other weights.
  size_t scratchpad_bytes() const {
    return std::max(AlignedSize(scratchpad), AlignedSize(reorder_scratchpad));
  }
  size_t scratch_bytes() const {
    return scratchpad_bytes() + (reorder.has_value() ? AlignedSize(weights) : 0);
  }
};

// oneDNN 2.6's pointwise kernels gather a strided image's channels 16 at a time, also where it has
// fewer, and then write past their scratchpad.  Its inner products, which it takes for an image of
// one window, may use AMX tiles that they have not configured.  Another implementation takes such a
// convolution, and one that AMX is not known to be right for.
template <typename Description>
Description WithoutFaults(Description description, const Conv2dSpec& spec) {
  if (spec.dtype == DType::kBF16 && CurrentBf16Unit() == Bf16Unit::kAmx) {
    description = AmxTakes(spec) ? Without(std::move(description), {"ip:"})
                                 : Without(std::move(description), {"ip:", "amx", "gemm"});
  }
  const Window2d& w = spec.window;
  const bool strided = w.stride_h > 1 || w.stride_w > 1;
  if (w.kernel_h != 1 || w.kernel_w != 1 || !strided || spec.c / spec.groups % 16 == 0) {
    return description;
  }
  return Without(std::move(description), {"1x1"});
}

class OneDnnConv2d : public Conv2d {
 public:
  // Throws dnnl::error.  Precondition: a layout that the spec binds is a tag of ours.
  OneDnnConv2d(const OneDnnContext& context, const Conv2dSpec& spec)
      : Conv2d({}),  // ChooseLayout sets it
        context_(context),
        spec_(spec),
        what_(ToString(spec)),
        sums_bias_(spec.bias && spec.n * spec.out_h() * spec.out_w() > kMostBiasPixels),
        // A batch of nothing is prepared as one of 1 and never run.
        operands_(spec, std::max<int64_t>(spec.n, 1)) {
    const OperandDescriptors& o = operands_;
    const auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::primitive_attr attributes = OneDnnAttributes();

    ChooseLayout();
    const dnnl::convolution_forward::primitive_desc forward = ChooseForward(o);
    forward_ = MakePass(dnnl::convolution_forward(forward), forward.weights_desc(),
                        forward.scratchpad_desc(), ReorderDirection::kReadsWeights);
    pack_ = MakeReorder(o.canonical, stored_);
    unpack_ = MakeReorder(stored_, o.canonical);
    if (!spec.train) return;

    if (spec.data_gradient) {
      const auto data =
          WithoutFaults(dnnl::convolution_backward_data::primitive_desc(
                            {direct, o.x, o.any, o.y, o.strides, o.dilations, o.before, o.after},
                            attributes, context.engine, forward),
                        spec);
      backward_data_ = MakePass(dnnl::convolution_backward_data(data), data.weights_desc(),
                                data.scratchpad_desc(), ReorderDirection::kReadsWeights);
    }
    const auto weights = DescribeBackwardWeights(o, sums_bias_ ? memory::desc() : o.bias, forward);
    backward_weights_ =
        MakePass(dnnl::convolution_backward_weights(weights), weights.diff_weights_desc(),
                 weights.scratchpad_desc(), ReorderDirection::kWritesWeights);
  }

  size_t scratch_bytes() const override {
    size_t bytes = forward_.scratch_bytes();
    if (!spec_.train) return bytes;
    bytes = std::max(bytes, backward_weights_.scratch_bytes());
    return spec_.data_gradient ? std::max(bytes, backward_data_.scratch_bytes()) : bytes;
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void* scratch) const override {
    if (spec_.n == 0) return absl::OkStatus();
    const auto bind = [&] {
      Bound bound;
      OneDnnArguments arguments = {
          {DNNL_ARG_SRC, Memory(operands_.x, x)},
          {DNNL_ARG_WEIGHTS, WantedWeights(bound, forward_, weights, scratch)},
          {DNNL_ARG_DST, Memory(operands_.y, y)},
          {DNNL_ARG_SCRATCHPAD, Memory(forward_.scratchpad, scratch)}};
      if (spec_.bias) arguments.emplace_back(DNNL_ARG_BIAS, Memory(operands_.bias, bias));
      bound.emplace_back(forward_.convolution, std::move(arguments));
      return bound;
    };
    return EnqueueOneDnn(stream, context_, what_, bind, [this, y] {
      ActivateInPlace(spec_.activation, spec_.dtype,
                      spec_.n * spec_.out_h() * spec_.out_w() * spec_.filters, y);
    });
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    GYRE_CHECK(spec_.train && spec_.data_gradient);
    if (spec_.n == 0) return absl::OkStatus();
    return EnqueueOneDnn(stream, context_, what_, [&] {
      Bound bound;
      const memory wanted = WantedWeights(bound, backward_data_, weights, scratch);
      bound.emplace_back(
          backward_data_.convolution,
          OneDnnArguments{{DNNL_ARG_DIFF_DST, Memory(operands_.y, dy)},
                          {DNNL_ARG_WEIGHTS, wanted},
                          {DNNL_ARG_DIFF_SRC, Memory(operands_.x, dx)},
                          {DNNL_ARG_SCRATCHPAD, Memory(backward_data_.scratchpad, scratch)}});
      return bound;
    });
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    GYRE_CHECK(spec_.train);
    if (spec_.n == 0) return ZeroGradients(stream, dweights, dbias);
    if (sums_bias_) RETURN_IF_ERROR(SumBias(stream, dy, dbias));
    return EnqueueOneDnn(stream, context_, what_, [&] {
      Bound bound;
      const ConvolutionPass& pass = backward_weights_;
      const memory stored = Memory(stored_, dweights);
      const memory made = pass.reorder.has_value() ? OtherWeights(pass, scratch) : stored;
      OneDnnArguments arguments = {{DNNL_ARG_SRC, Memory(operands_.x, x)},
                                   {DNNL_ARG_DIFF_DST, Memory(operands_.y, dy)},
                                   {DNNL_ARG_DIFF_WEIGHTS, made},
                                   {DNNL_ARG_SCRATCHPAD, Memory(pass.scratchpad, scratch)}};
      if (spec_.bias && !sums_bias_) {
        arguments.emplace_back(DNNL_ARG_DIFF_BIAS, Memory(operands_.bias, dbias));
      }
      bound.emplace_back(pass.convolution, std::move(arguments));
      if (pass.reorder.has_value()) Reorder(bound, pass, made, stored, scratch);
      return bound;
    });
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    return Convert(pack_, operands_.canonical, canonical, stored_, opaque);
  }

  absl::Status Unpack(const void* opaque, void* canonical) const override {
    return Convert(unpack_, stored_, opaque, operands_.canonical, canonical);
  }

 private:
  enum class ReorderDirection : uint8_t { kReadsWeights, kWritesWeights };

  struct PreparedReorder {
    dnnl::reorder primitive;
    memory::desc scratchpad;
  };

  dnnl::convolution_forward::primitive_desc DescribeForward(const OperandDescriptors& o,
                                                            const memory::desc& weights) const {
    return WithoutFaults(
        dnnl::convolution_forward::primitive_desc(
            {spec_.train ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
             dnnl::algorithm::convolution_direct, o.x, weights, o.bias, o.y, o.strides, o.dilations,
             o.before, o.after},
            OneDnnAttributes(), context_.engine),
        spec_);
  }

  // bias: empty if its gradient is made elsewhere.
  dnnl::convolution_backward_weights::primitive_desc DescribeBackwardWeights(
      const OperandDescriptors& o, const memory::desc& bias,
      const dnnl::convolution_forward::primitive_desc& forward) const {
    return WithoutFaults(dnnl::convolution_backward_weights::primitive_desc(
                             {dnnl::algorithm::convolution_direct, o.x, o.any, bias, o.y, o.strides,
                              o.dilations, o.before, o.after},
                             OneDnnAttributes(), context_.engine, forward),
                         spec_);
  }

  // By the weights as they are stored where a fast kernel takes them so, else as it likes.
  dnnl::convolution_forward::primitive_desc ChooseForward(const OperandDescriptors& o) const {
    const auto as_stored = DescribeForward(o, stored_);
    const bool fast = std::string_view(as_stored.impl_info_str()).starts_with("jit:");
    return fast ? as_stored : DescribeForward(o, o.any);
  }

  // Where a window of several pixels moves by one over full vectors of channels, forward is as fast
  // with weights as their gradient is made, which is then not reordered.
  bool PrefersGradientsLayout() const {
    constexpr int64_t kLanes = 16;
    const Window2d& w = spec_.window;
    return spec_.train && spec_.dtype == DType::kF32 && spec_.groups == 1 &&
           std::max(w.kernel_h, w.kernel_w) > 1 && std::max(w.stride_h, w.stride_w) == 1 &&
           spec_.c % kLanes == 0 && spec_.filters % kLanes == 0;
  }

  // The spec's layout if it binds one, else what a pass wants, else (never seen: a layout without a
  // name) the canonical one.
  void ChooseLayout() {
    layout_.tag = spec_.weight_layout;
    if (layout_.tag.empty()) {
      const OperandDescriptors typical(spec_, kLayoutBatch);
      const auto forward = DescribeForward(typical, typical.any);
      layout_.tag = OneDnnLayoutTag(
          PrefersGradientsLayout()
              ? DescribeBackwardWeights(typical, typical.bias, forward).diff_weights_desc()
              : forward.weights_desc());
    }
    if (layout_.tag.empty()) layout_.tag = OneDnnLayoutTag(operands_.canonical);
    stored_ = *OneDnnLayout(operands_.weight_dims, operands_.type, layout_.tag);
    layout_.bytes = stored_.get_size();
  }

  PreparedReorder MakeReorder(const memory::desc& from, const memory::desc& to) const {
    const dnnl::reorder::primitive_desc desc(context_.engine, from, context_.engine, to,
                                             OneDnnAttributes());
    return {dnnl::reorder(desc), desc.scratchpad_desc()};
  }

  ConvolutionPass MakePass(dnnl::primitive convolution, const memory::desc& weights,
                           const memory::desc& scratchpad, ReorderDirection direction) const {
    ConvolutionPass pass{
        .convolution = std::move(convolution), .scratchpad = scratchpad, .weights = weights};
    if (weights != stored_) {
      PreparedReorder reorder = direction == ReorderDirection::kReadsWeights
                                    ? MakeReorder(stored_, weights)
                                    : MakeReorder(weights, stored_);
      pass.reorder = std::move(reorder.primitive);
      pass.reorder_scratchpad = reorder.scratchpad;
    }
    return pass;
  }

  memory Memory(const memory::desc& desc, const void* data) const {
    return OneDnnMemory(desc, context_, data);
  }

  memory OtherWeights(const ConvolutionPass& pass, void* scratch) const {
    return Memory(pass.weights, static_cast<std::byte*>(scratch) + pass.scratchpad_bytes());
  }

  memory WantedWeights(Bound& bound, const ConvolutionPass& pass, const void* weights,
                       void* scratch) const {
    const memory stored = Memory(stored_, weights);
    if (!pass.reorder.has_value()) return stored;
    const memory other = OtherWeights(pass, scratch);
    Reorder(bound, pass, stored, other, scratch);
    return other;
  }

  void Reorder(Bound& bound, const ConvolutionPass& pass, const memory& from, const memory& to,
               void* scratch) const {
    bound.emplace_back(*pass.reorder, OneDnnArguments{{DNNL_ARG_FROM, from},
                                                      {DNNL_ARG_TO, to},
                                                      {DNNL_ARG_SCRATCHPAD,
                                                       Memory(pass.reorder_scratchpad, scratch)}});
  }

  absl::Status SumBias(Stream& stream, const void* dy, void* dbias) const {
    const int64_t pixels = spec_.n * spec_.out_h() * spec_.out_w();
    return VisitReal(spec_.dtype, [&]<typename T>() {
      return ReduceColumns(
          stream, pixels, spec_.filters,
          ColumnSum<T>{{}, spec_.filters, static_cast<const T*>(dy), static_cast<T*>(dbias)});
    });
  }

  absl::Status ZeroGradients(Stream& stream, void* dweights, void* dbias) const {
    return stream.Call([=, this] {
      std::fill_n(static_cast<std::byte*>(dweights), layout_.bytes, std::byte{0});
      const size_t bias_bytes =
          spec_.bias ? static_cast<size_t>(spec_.filters) * SizeOf(spec_.dtype) : 0;
      std::fill_n(static_cast<std::byte*>(dbias), bias_bytes, std::byte{0});
      return absl::OkStatus();
    });
  }

  absl::Status Convert(const PreparedReorder& reorder, const memory::desc& from, const void* data,
                       const memory::desc& to, void* result) const {
    return RunOneDnn(context_, what_, [&](dnnl::stream& s) {
      const memory scratch(reorder.scratchpad, context_.engine);
      reorder.primitive.execute(s, {{DNNL_ARG_FROM, Memory(from, data)},
                                    {DNNL_ARG_TO, Memory(to, result)},
                                    {DNNL_ARG_SCRATCHPAD, scratch}});
    });
  }

  const OneDnnContext context_;
  const Conv2dSpec spec_;
  const std::string what_;
  const bool sums_bias_;  // its gradient here
  const OperandDescriptors operands_;
  memory::desc stored_;
  ConvolutionPass forward_, backward_data_, backward_weights_;
  PreparedReorder pack_, unpack_;
};

// oneDNN 2.6's kernel for the gradient of BF16 weights of one channel reads past a row that is
// shorter than a horizontal stride.  Such a window has one column, from which it does not move, and
// so the stride may be any that ends there.
Conv2dSpec WithoutLongStride(Conv2dSpec spec) {
  Window2d& w = spec.window;
  if (spec.out_w() != 1 || w.stride_w <= w.padding_left + spec.w) return spec;
  w.padding_right = std::max<int64_t>(0, w.span_w() - w.padding_left - spec.w);
  w.stride_w = w.padding_left + spec.w + w.padding_right - w.span_w() + 1;
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareOneDnnConv2d(const OneDnnContext& context,
                                                            const Conv2dSpec& given) {
  const Conv2dSpec spec = WithoutLongStride(given);
  if (!spec.weight_layout.empty() && !OneDnnLayout(OperandDescriptors(spec, 1).weight_dims,
                                                   OneDnnType(spec.dtype), spec.weight_layout)
                                          .has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(spec), ": oneDNN does not know this weight layout"));
  }
  return PrepareOneDnn<OneDnnConv2d>(context, spec);
}

}  // namespace gyre
