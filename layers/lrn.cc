// lrn: local response normalisation across channels.  x, y: [..., C], an image's channels last.
//
// With d[c] = k + alpha / size * the sum of x[i]^2 over the `size` channels i nearest to c,
//   y[c] = x[c] d[c]^-beta,
//   dx[c] = dy[c] d[c]^-beta - 2 alpha beta / size * x[c] * the sum of dy[i] y[i] / d[i] over them.
// Source: Krizhevsky, Sutskever, Hinton 2012, "ImageNet classification with deep convolutional
// neural networks", section 3.3.  Alpha is divided by the size, as in Caffe and PyTorch.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/row_by_row.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kInverse = 2;  // states

// kCommon: size 5 and beta 0.75, as in every net of the time.  The loop over neighbours is
// unrolled, and the power is two roots.
template <typename T, bool kCommon>
struct LrnRows : RowByRow {
  using A = AccumulateType<T>;
  int64_t columns, reach;  // reach: of the window to either side
  A beta;

  // The sum of term(i) over the window, i being elements of the row.
  template <typename Term>
  HOST_DEVICE A SumOverWindow(int64_t row, int64_t column, const Term& term) const {
    const int64_t side = kCommon ? 2 : reach;
    A sum = 0;
    for (int64_t at = column - side; at <= column + side; ++at) {
      if (at >= 0 && at < columns) sum += term(row * columns + at);
    }
    return sum;
  }
  // v^beta.
  HOST_DEVICE A Power(A v) const {
    if constexpr (kCommon) {
      const A root = std::sqrt(v);
      return root * std::sqrt(root);
    } else {
      return std::pow(v, beta);
    }
  }
};

template <typename T, bool kCommon>
struct LrnForward : LrnRows<T, kCommon> {
  using A = AccumulateType<T>;
  A k, scale;  // scale: alpha / size
  const T* x;
  T* y;
  A* inverse;  // 1 / d; null where there is no backward

  HOST_DEVICE void Apply(int64_t row, int64_t column, RowByRow::Value) const {
    const A squares = this->SumOverWindow(row, column, [x = x](int64_t i) {
      const A v = x[i];
      return v * v;
    });
    const int64_t i = row * this->columns + column;
    const A inverse_d = A{1} / (k + scale * squares);
    y[i] = static_cast<T>(static_cast<A>(x[i]) * this->Power(inverse_d));
    if (inverse != nullptr) inverse[i] = inverse_d;
  }
};

template <typename T, bool kCommon>
struct LrnBackward : LrnRows<T, kCommon> {
  using A = AccumulateType<T>;
  A scale;  // 2 alpha beta / size
  const T* x;
  const T* y;
  const A* inverse;
  const T* dy;
  T* dx;

  HOST_DEVICE void Apply(int64_t row, int64_t column, RowByRow::Value) const {
    const A others =
        this->SumOverWindow(row, column, [dy = dy, y = y, inverse = inverse](int64_t i) {
          return static_cast<A>(dy[i]) * static_cast<A>(y[i]) * inverse[i];
        });
    const int64_t i = row * this->columns + column;
    dx[i] = static_cast<T>(static_cast<A>(dy[i]) * this->Power(inverse[i]) -
                           scale * static_cast<A>(x[i]) * others);
  }
};

class Lrn : public Layer {
 public:
  explicit Lrn(const LrnConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[kX];
    ASSIGN_OR_RETURN(rows_, RowsOf(input, "x", "channels"));
    compute_ = input.compute;
    saves_ = NeedsGradient(input, kX);
    const uint8_t read = saves_ ? kRead : kNone;
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, read),
                   MakeOutput(input, shape, read)};
    if (saves_) {
      spec.states.push_back(
          MakeState("inverse", StateKind::kSaved, shape, AccumulateDType(compute_), kWrite, kRead));
    }
    // A square and a sum for each of the window, the power and a product; backward two products
    // and a sum, and three products and a difference.
    const auto elements = static_cast<double>(shape.elements());
    const auto size = static_cast<double>(config_.size());
    spec.forward_flops = (2 * size + 4) * elements;
    spec.backward_flops = (3 * size + 5) * elements;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return Visit([&]<typename T, bool kCommon>() {
      using A = AccumulateType<T>;
      return TransformRows(
          context.stream, rows_.count, rows_.columns,
          LrnForward<T, kCommon>{
              Window<T, kCommon>(), static_cast<A>(config_.k()),
              static_cast<A>(config_.alpha() / static_cast<double>(config_.size())),
              context.states[kX].as<T>(), context.states[kY].as<T>(),
              saves_ ? context.states[kInverse].as<A>() : nullptr});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    const double scale = 2 * config_.alpha() * config_.beta() / static_cast<double>(config_.size());
    return Visit([&]<typename T, bool kCommon>() {
      using A = AccumulateType<T>;
      return TransformRows(
          context.stream, rows_.count, rows_.columns,
          LrnBackward<T, kCommon>{Window<T, kCommon>(), static_cast<A>(scale),
                                  context.states[kX].as<T>(), context.states[kY].as<T>(),
                                  context.states[kInverse].as<A>(), context.gradients[kY].as<T>(),
                                  context.gradients[kX].as<T>()});
    });
  }

  // LRN takes four axes, so missing ones are added behind.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    constexpr int kAxes = 4;
    const int axes = onnx.shape(kX).rank();
    if (axes > kAxes) {
      return absl::UnimplementedError(
          absl::StrFormat("ONNX's readers take LRN of at most %d axes, and x has %d", kAxes, axes));
    }
    const OnnxForm form{axes == 2 ? OnnxForm::kRows : OnnxForm::kChannelsFirst};
    std::string value = onnx.Input(kX, form);
    std::vector<int64_t> added;
    for (int64_t axis = axes; axis < kAxes; ++axis) added.push_back(axis);
    if (!added.empty()) value = onnx.Node("Unsqueeze", {value, onnx.Ints(added)});
    value = onnx.Node("LRN", {value},
                      {{"size", config_.size()},
                       {"alpha", static_cast<float>(config_.alpha())},
                       {"beta", static_cast<float>(config_.beta())},
                       {"bias", static_cast<float>(config_.k())}});
    if (!added.empty()) value = onnx.Node("Squeeze", {value, onnx.Ints(added)});
    onnx.Output(0, value, form);
    return absl::OkStatus();
  }

 private:
  template <typename F>
  absl::Status Visit(const F& f) const {
    const bool common = config_.size() == 5 && config_.beta() == 0.75;
    return VisitReal(compute_, [&]<typename T>() {
      return common ? f.template operator()<T, true>() : f.template operator()<T, false>();
    });
  }

  template <typename T, bool kCommon>
  LrnRows<T, kCommon> Window() const {
    const int64_t reach = std::min(config_.size() / 2, rows_.columns);
    return {{}, rows_.columns, reach, static_cast<AccumulateType<T>>(config_.beta())};
  }

  const LrnConfig config_;
  DType compute_ = DType::kF32;
  bool saves_ = false;
  Rows rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateLrn(const LrnConfig& config) {
  RETURN_IF_ERROR(CheckExtent("size", config.size()));
  if (config.size() % 2 == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("size: expected an odd number, got %d", config.size()));
  }
  RETURN_IF_ERROR(CheckNotNegative("alpha", config.alpha()));
  RETURN_IF_ERROR(CheckNotNegative("beta", config.beta()));
  if (!std::isfinite(config.k()) || config.k() <= 0) {
    return absl::InvalidArgumentError(absl::StrFormat("k: expected above 0, got %g", config.k()));
  }
  return std::make_unique<Lrn>(config);
}

}  // namespace gyre
