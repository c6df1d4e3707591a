// conv2d: cross-correlation of images, plus a bias for each filter.
//   x [N, H, W, C]; y [N, H', W', filters]
//   canonical weights [filters, C / groups, kernel height, kernel width]
// The primitive does the arithmetic and chooses the weights' layout.  The first shape that a net is
// inferred for chooses the layout for all.
// conv1d: the same for lines.  x: [N, ..., L, C]; weights: [filters, C / groups, kernel].

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/column_sum.h"
#include "layers/common/window.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kWeight = 2;  // states; bias and scratch follow if there are any

class Conv2dLayer : public Layer {
 public:
  Conv2dLayer(const Conv2dConfig& config, bool lines) : config_(config), lines_(lines) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(const Images x, ReadImages(input, lines_));
    ASSIGN_OR_RETURN(Conv2dSpec conv, MakeSpec(input, x));
    ASSIGN_OR_RETURN(conv_, input.primitives->Prepare(conv));

    const bool data_gradient = NeedsGradient(input, kX);
    pixels_ = conv.n * conv.out_h() * conv.out_w();
    LayerSpec spec;
    spec.states = {
        MakeState("input", StateKind::kInput, x.shape, conv.dtype, kRead, kNone),
        MakeOutput(input, x.OutputShape(conv.out_h(), conv.out_w(), conv.filters), kNone)};
    RETURN_IF_ERROR(AddParameters(input, conv, data_gradient, spec));
    const bool weight_gradient = spec.states[kWeight].trained();
    if (weight_gradient) spec.states[kX].backward = InBackward(input, kRead);
    if (input.train && weight_gradient && bias_ >= 0 && !spec.states[bias_].trained()) {
      // The primitive makes both gradients at once.
      unused_ = AddState(spec, MakeState("unused", StateKind::kScratch, Shape{conv.filters},
                                         conv.dtype, kNone, kWrite));
    }
    const uint8_t access = kRead | kWrite;
    scratch_ = AddScratch(spec, conv_->scratch_bytes(), access, InBackward(input, access));
    spec.applied_activation = !HasBound(input);
    spec.forward_flops = conv.forward_flops();
    spec.backward_flops = (data_gradient + weight_gradient) * spec.forward_flops;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const std::span<const Tensor> states = context.states;
    return conv_->Forward(context.stream, states[kX].data, states[kWeight].data,
                          context.data(bias_), states[kY].data, context.data(scratch_));
  }

  absl::Status Backward(const LayerContext& context) const override {
    const std::span<const Tensor> gradients = context.gradients;
    const void* dy = gradients[kY].data;
    void* dbias = nullptr;
    if (bias_ >= 0) dbias = unused_ < 0 ? gradients[bias_].data : context.data(unused_);
    if (gradients[kWeight]) {
      RETURN_IF_ERROR(conv_->BackwardWeights(context.stream, context.states[kX].data, dy,
                                             gradients[kWeight].data, dbias,
                                             context.data(scratch_)));
    } else if (bias_ >= 0 && gradients[bias_]) {
      RETURN_IF_ERROR(BackwardBias(context));
    }
    if (!gradients[kX]) return absl::OkStatus();
    return conv_->BackwardData(context.stream, dy, context.states[kWeight].data, gradients[kX].data,
                               context.data(scratch_));
  }

  absl::Status Pack(int state, Tensor canonical, Tensor opaque) const override {
    if (state != kWeight) return Layer::Pack(state, canonical, opaque);
    return conv_->Pack(canonical.data, opaque.data);
  }

  absl::Status Unpack(int state, Tensor opaque, Tensor canonical) const override {
    if (state != kWeight) return Layer::Unpack(state, opaque, canonical);
    return conv_->Unpack(opaque.data, canonical.data);
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    ASSIGN_OR_RETURN(const OnnxForm form, OnnxImages(onnx));
    ASSIGN_OR_RETURN(const Window2d window, ReadWindow(config_));
    const int axes = onnx.shape(kX).rank();
    std::vector<OnnxAttribute> attributes = OnnxWindow(window, axes);
    const auto kernel = std::get<std::vector<int64_t>>(attributes[0].value);
    attributes.push_back(OnnxDilations(window, axes));
    attributes.push_back({"group", config_.groups()});
    std::vector<int64_t> dims = {config_.filters(), onnx.shape(kX)[axes - 1] / config_.groups()};
    dims.insert(dims.end(), kernel.begin(), kernel.end());
    std::vector<std::string> inputs = {onnx.Input(kX, form),
                                       onnx.Weights("weight", dims, onnx.Numbers("weight"))};
    if (config_.use_bias()) inputs.push_back(onnx.Parameter("bias"));
    onnx.Output(0, onnx.Node("Conv", inputs, attributes), form);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Conv2dSpec> MakeSpec(const InferInput& input, const Images& x) const {
    ASSIGN_OR_RETURN(const Window2d window, ReadWindow(config_));
    RETURN_IF_ERROR(CheckWindowFits(x, window));
    if (x.c % config_.groups() != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "groups %d does not divide the input's %d channels", config_.groups(), x.c));
    }
    Conv2dSpec conv{.dtype = input.compute,
                    .n = x.n,
                    .h = x.h,
                    .w = x.w,
                    .c = x.c,
                    .filters = config_.filters(),
                    .window = window,
                    .groups = config_.groups(),
                    .bias = config_.use_bias(),
                    .activation = HasBound(input) ? Activation::kNone : input.output_activation,
                    .weight_layout = {},
                    .train = input.train,
                    .data_gradient = NeedsGradient(input, kX)};
    RETURN_IF_ERROR(
        CheckCountable("output", Shape{conv.n, conv.out_h(), conv.out_w(), conv.filters}));
    RETURN_IF_ERROR(CheckCountable(
        "weight", Shape{conv.filters, conv.c / conv.groups, window.kernel_h, window.kernel_w}));
    if (const StateSpec* first = FindState(input.same_parameters_as, "weight")) {
      conv.weight_layout = first->layout;
    }
    return conv;
  }

  absl::Status AddParameters(const InferInput& input, const Conv2dSpec& conv, bool data_gradient,
                             LayerSpec& spec) {
    const int64_t window = conv.window.kernel_h * conv.window.kernel_w;
    const int64_t fan_in = conv.c / conv.groups * window;
    const int64_t fan_out = conv.filters / conv.groups * window;
    const Initializer weights{
        .kind = Initializer::Kind::kXavier, .fan_in = fan_in, .fan_out = fan_out};
    const int64_t channels = conv.c / conv.groups;
    const Shape canonical =
        lines_ ? Shape{conv.filters, channels, conv.window.kernel_w}
               : Shape{conv.filters, channels, conv.window.kernel_h, conv.window.kernel_w};
    ASSIGN_OR_RETURN(StateSpec weight, MakeParameter("weight", canonical, config_.weight(), weights,
                                                     input, data_gradient ? kRead : kNone));
    const WeightLayout& layout = conv_->weight_layout();
    const StateSpec* first = FindState(input.same_parameters_as, "weight");
    if (first != nullptr && first->layout != layout.tag) {
      // An empty tag binds nothing, so an implementation that refused the first shape may take
      // this one and choose otherwise.
      return absl::UnimplementedError(
          absl::StrFormat("weight: stored as \"%s\" for another shape, but this one needs \"%s\"",
                          first->layout, layout.tag));
    }
    if (!layout.tag.empty()) {
      weight.layout = layout.tag;
      weight.bytes = layout.bytes;
      weight.shape = Shape{static_cast<int64_t>(layout.bytes / SizeOf(conv.dtype))};
    }
    spec.states.push_back(std::move(weight));
    if (!config_.use_bias()) return absl::OkStatus();
    const Initializer zeros{.fan_in = fan_in, .fan_out = fan_out};
    ASSIGN_OR_RETURN(StateSpec bias, MakeParameter("bias", Shape{conv.filters}, config_.bias(),
                                                   zeros, input, kNone));
    bias_ = AddState(spec, std::move(bias));
    return absl::OkStatus();
  }

  absl::Status BackwardBias(const LayerContext& context) const {
    const Tensor &dy = context.gradients[kY], &dbias = context.gradients[bias_];
    return VisitReal(dy.dtype, [&]<typename T>() {
      return ReduceColumns(context.stream, pixels_, dbias.elements(),
                           ColumnSum<T>{{}, dbias.elements(), dy.as<T>(), dbias.as<T>()});
    });
  }

  const Conv2dConfig config_;
  const bool lines_;
  int bias_ = -1, scratch_ = -1, unused_ = -1;  // states
  int64_t pixels_ = 0;                          // of the output, over all images
  std::unique_ptr<Conv2d> conv_;
};

absl::StatusOr<std::unique_ptr<Layer>> Create(const Conv2dConfig& config, bool lines) {
  RETURN_IF_ERROR(CheckExtent("filters", config.filters()));
  RETURN_IF_ERROR(CheckExtent("groups", config.groups()));
  if (config.filters() % config.groups() != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("groups %d does not divide the %d filters",
                                                      config.groups(), config.filters()));
  }
  return std::make_unique<Conv2dLayer>(config, lines);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateConv2d(const Conv2dConfig& config) {
  return Create(config, /*lines=*/false);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateConv1d(const Conv1dConfig& config) {
  ASSIGN_OR_RETURN(const Conv2dConfig images, OfImages(config));
  return Create(images, /*lines=*/true);
}

}  // namespace gyre
