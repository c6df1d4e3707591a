// pool2d: the maximum or the average of each window of images x: [N, H, W, C]; y: [N, H', W', C].
// An average leaves padding out.  A global one has the whole image for its window.  Windows that
// would cross the padded border are left out.  The primitive does the arithmetic.
// pool1d: the same of lines x: [N, ..., L, C].

#include <algorithm>

#include "absl/strings/str_format.h"
#include "layers/common/window.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

class Pool2dLayer : public Layer {
 public:
  Pool2dLayer(const Pool2dConfig& config, bool lines) : config_(config), lines_(lines) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(const Images x, ReadImages(input, lines_));
    ASSIGN_OR_RETURN(const Pool2dSpec pool, MakeSpec(input, x));
    ASSIGN_OR_RETURN(pool_, input.primitives->Prepare(pool));
    LayerSpec spec;
    const Shape y = x.OutputShape(pool.out_h(), pool.out_w(), pool.c);
    spec.states = {MakeState("input", StateKind::kInput, x.shape, pool.dtype, kRead, kNone),
                   MakeOutput(input, y, kNone)};
    if (pool_->saved_bytes() > 0) {
      saved_ = AddState(spec, MakeBytes("saved", StateKind::kSaved, pool_->saved_bytes(), kWrite,
                                        InBackward(input, kRead)));
    }
    spec.forward_flops = static_cast<double>(y.elements()) *
                         static_cast<double>(pool.window.kernel_h * pool.window.kernel_w);
    // The gradient of a maximum goes to one element, that of an average to the whole window.
    spec.backward_flops =
        pool.kind == PoolKind::kMax ? static_cast<double>(y.elements()) : spec.forward_flops;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return pool_->Forward(context.stream, context.states[kX].data, context.states[kY].data,
                          context.data(saved_));
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return pool_->Backward(context.stream, context.gradients[kY].data, context.data(saved_),
                           context.gradients[kX].data);
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    ASSIGN_OR_RETURN(const OnnxForm form, OnnxImages(onnx));
    const int axes = onnx.shape(kX).rank();
    const std::string kind = config_.kind() == Pool2dConfig::MAX ? "MaxPool" : "AveragePool";
    std::string y;
    if (config_.global() && (!lines_ || axes == 3)) {
      y = onnx.Node("Global" + kind, {onnx.Input(kX, form)});
    } else {
      Window2d window{.kernel_h = 1, .kernel_w = onnx.shape(kX)[axes - 2]};
      if (!config_.global()) {
        ASSIGN_OR_RETURN(window, ReadWindow(config_));
      }
      y = onnx.Node(kind, {onnx.Input(kX, form)}, OnnxWindow(window, axes));
    }
    onnx.Output(0, y, form);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Pool2dSpec> MakeSpec(const InferInput& input, const Images& x) const {
    Window2d window{.kernel_h = x.h, .kernel_w = x.w};
    if (!config_.global()) {
      ASSIGN_OR_RETURN(window, ReadWindow(config_));
    }
    // A window that lies in padding alone would have no maximum and no average.
    RETURN_IF_ERROR(CheckPadding(window.padding_top, window.padding_bottom, window.kernel_h));
    RETURN_IF_ERROR(CheckPadding(window.padding_left, window.padding_right, window.kernel_w));
    RETURN_IF_ERROR(CheckWindowFits(x, window));
    const Pool2dSpec pool{
        .dtype = input.compute,
        .kind = config_.kind() == Pool2dConfig::MAX ? PoolKind::kMax : PoolKind::kAverage,
        .n = x.n,
        .h = x.h,
        .w = x.w,
        .c = x.c,
        .window = window,
        .train = input.train};
    RETURN_IF_ERROR(CheckCountable("output", Shape{pool.n, pool.out_h(), pool.out_w(), pool.c}));
    return pool;
  }

  static absl::Status CheckPadding(int64_t before, int64_t after, int64_t kernel) {
    const int64_t padding = std::max(before, after);
    if (padding < kernel) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("padding: expected less than the kernel %d, got %d", kernel, padding));
  }

  const Pool2dConfig config_;
  const bool lines_;
  int saved_ = -1;  // state
  std::unique_ptr<Pool2d> pool_;
};

absl::StatusOr<std::unique_ptr<Layer>> Create(const Pool2dConfig& config, bool lines) {
  if (config.global() &&
      (config.kernel_size() > 0 || config.stride_size() > 0 || config.padding_size() > 0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "global: its window is the whole %s; remove kernel, stride and padding, or global",
        lines ? "line" : "image"));
  }
  return std::make_unique<Pool2dLayer>(config, lines);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreatePool2d(const Pool2dConfig& config) {
  return Create(config, /*lines=*/false);
}

absl::StatusOr<std::unique_ptr<Layer>> CreatePool1d(const Pool1dConfig& config) {
  ASSIGN_OR_RETURN(const Pool2dConfig images, OfImages(config));
  return Create(images, /*lines=*/true);
}

}  // namespace gyre
