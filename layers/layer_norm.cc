// layer_norm: y = s n + b with n = (x - mean) / sqrt(variance + epsilon), both over the last axis.
//
// x, y: [..., C]; s, b: [C].  With g = s dy,
//   dx = (g - mean of g - n times the mean of g n) / sqrt(variance + epsilon),
//   ds = the sum of dy n over rows,  db = the sum of dy over rows.
// Source: Ba, Kiros, Hinton 2016, arXiv:1607.06450.

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/parallel/two_sums.h"
#include "layers/common/row_by_row.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kScale = 2, kBias = 3, kMean = 4, kInverse = 5;  // states

// The input, and what backward needs: a row's mean and 1 / sqrt(variance + epsilon).
template <typename T>
struct NormStates {
  using A = AccumulateType<T>;
  int64_t columns;
  const T* x;
  A* mean;     // [rows]
  A* inverse;  // [rows]

  HOST_DEVICE A Normalised(int64_t row, int64_t column) const {
    return (static_cast<A>(x[row * columns + column]) - mean[row]) * inverse[row];
  }
};

// Sums of d = x - x_0 and of d^2, with x_0 the row's first element.  The variance is the mean of
// d^2 less the square of d's mean.  That square is at most columns - 1 times the variance, so as
// many units in the last place may be lost.  The worst row's first element alone stands out.
template <typename T>
struct RowMoments : SumReduction<TwoSums<AccumulateType<T>>> {
  using A = AccumulateType<T>;
  NormStates<T> norm;
  A epsilon;

  HOST_DEVICE A First(int64_t row) const { return norm.x[row * norm.columns]; }
  HOST_DEVICE TwoSums<A> Load(int64_t row, int64_t column) const {
    const A d = static_cast<A>(norm.x[row * norm.columns + column]) - First(row);
    return {d, d * d};
  }
  HOST_DEVICE void Store(int64_t row, TwoSums<A> sums) const {
    const A count = static_cast<A>(norm.columns), shift = sums.first / count;
    const A variance = sums.second / count - shift * shift;
    norm.mean[row] = First(row) + shift;
    // Rounding may make it negative; a NaN stays.
    norm.inverse[row] = A{1} / std::sqrt((variance < 0 ? 0 : variance) + epsilon);
  }
};

template <typename T>
struct NormRows : RowByRow {
  using A = AccumulateType<T>;
  NormStates<T> norm;
  const T* scale;
  const T* bias;
  T* y;

  HOST_DEVICE void Apply(int64_t row, int64_t column, Value) const {
    y[row * norm.columns + column] =
        static_cast<T>(static_cast<A>(scale[column]) * norm.Normalised(row, column) +
                       static_cast<A>(bias[column]));
  }
};

// Sums of g and of g n.
template <typename T>
struct NormGradient : SumReduction<TwoSums<AccumulateType<T>>> {
  using A = AccumulateType<T>;
  NormStates<T> norm;
  const T* scale;
  const T* dy;
  T* dx;

  HOST_DEVICE A Scaled(int64_t row, int64_t column) const {
    return static_cast<A>(scale[column]) * static_cast<A>(dy[row * norm.columns + column]);
  }
  HOST_DEVICE TwoSums<A> Load(int64_t row, int64_t column) const {
    const A g = Scaled(row, column);
    return {g, g * norm.Normalised(row, column)};
  }
  HOST_DEVICE TwoSums<A> Finish(TwoSums<A> sums) const {
    const A count = static_cast<A>(norm.columns);
    return {sums.first / count, sums.second / count};
  }
  HOST_DEVICE void Apply(int64_t row, int64_t column, TwoSums<A> means) const {
    const A n = norm.Normalised(row, column);
    dx[row * norm.columns + column] =
        static_cast<T>((Scaled(row, column) - means.first - n * means.second) * norm.inverse[row]);
  }
};

// Columns' sums of dy n and of dy.  A null pointer asks for none.
template <typename T>
struct NormParameterGradients : SumReduction<TwoSums<AccumulateType<T>>> {
  using A = AccumulateType<T>;
  NormStates<T> norm;
  const T* dy;
  T* scale;
  T* bias;

  HOST_DEVICE TwoSums<A> Load(int64_t row, int64_t column) const {
    const A g = dy[row * norm.columns + column];
    return {g * norm.Normalised(row, column), g};
  }
  HOST_DEVICE void Store(int64_t column, TwoSums<A> sums) const {
    if (scale != nullptr) scale[column] = static_cast<T>(sums.first);
    if (bias != nullptr) bias[column] = static_cast<T>(sums.second);
  }
};

class LayerNorm : public Layer {
 public:
  explicit LayerNorm(const LayerNormConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[kX];
    ASSIGN_OR_RETURN(rows_, RowsOf(input, "x", "channels"));
    compute_ = input.compute;
    const bool data_gradient = NeedsGradient(input, kX);
    const Shape channels{rows_.columns};
    const Initializer ones{.value = 1, .fan_in = 1, .fan_out = 1}, zeros{.fan_in = 1, .fan_out = 1};
    ASSIGN_OR_RETURN(const StateSpec scale, MakeParameter("scale", channels, config_.scale(), ones,
                                                          input, data_gradient ? kRead : kNone));
    ASSIGN_OR_RETURN(const StateSpec bias,
                     MakeParameter("bias", channels, config_.bias(), zeros, input, kNone));
    // What an element is computed in, per row.
    const DType wide = AccumulateDType(compute_);
    const bool reads = data_gradient || scale.trained() || bias.trained();
    const uint8_t read = reads ? InBackward(input, kRead) : static_cast<uint8_t>(kNone);
    const auto saved = [&](const char* name) {
      return MakeState(name, StateKind::kSaved, Shape{rows_.count}, wide, kRead | kWrite, read);
    };
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, read),
                   MakeOutput(input, shape, kNone),
                   scale,
                   bias,
                   saved("mean"),
                   saved("inverse_deviation")};
    const bool sums_gradients = input.train && (scale.trained() || bias.trained());
    const size_t scratch =
        OnGpu(input, VisitReal(compute_, [&]<typename T>() {
                return ReduceColumnsScratch<NormParameterGradients<T>>(rows_.count, rows_.columns);
              }));
    scratch_ = AddScratch(spec, sums_gradients ? scratch : 0, kNone, kRead | kWrite);
    // Two sums of differences and squares, then two products, a difference and a sum; backward
    // twice that.
    spec.forward_flops = 8 * static_cast<double>(shape.elements());
    spec.backward_flops = 2 * spec.forward_flops;
    spec.cheap = true;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return VisitReal(compute_, [&]<typename T>() -> absl::Status {
      using A = AccumulateType<T>;
      const NormStates<T> norm = StatesOf<T>(context);
      RETURN_IF_ERROR(ForEachRow(context.stream, rows_.count, rows_.columns,
                                 RowMoments<T>{{}, norm, static_cast<A>(config_.epsilon())}));
      return TransformRows(context.stream, rows_.count, rows_.columns,
                           NormRows<T>{{},
                                       norm,
                                       context.states[kScale].as<T>(),
                                       context.states[kBias].as<T>(),
                                       context.states[kY].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor &dx = context.gradients[kX], &dy = context.gradients[kY];
    const Tensor &dscale = context.gradients[kScale], &dbias = context.gradients[kBias];
    return VisitReal(compute_, [&]<typename T>() -> absl::Status {
      if (dscale || dbias) {
        RETURN_IF_ERROR(ReduceColumns(context.stream, rows_.count, rows_.columns,
                                      NormParameterGradients<T>{{},
                                                                StatesOf<T>(context),
                                                                dy.as<T>(),
                                                                dscale ? dscale.as<T>() : nullptr,
                                                                dbias ? dbias.as<T>() : nullptr},
                                      context.data(scratch_)));
      }
      if (!dx) return absl::OkStatus();
      return TransformRows(
          context.stream, rows_.count, rows_.columns,
          NormGradient<T>{
              {}, StatesOf<T>(context), context.states[kScale].as<T>(), dy.as<T>(), dx.as<T>()});
    });
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    onnx.RequireOpset(17);
    onnx.Output(
        0, onnx.Node("LayerNormalization",
                     {onnx.Input(kX), onnx.Parameter("scale"), onnx.Parameter("bias")},
                     {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(config_.epsilon())}}));
    return absl::OkStatus();
  }

 private:
  template <typename T>
  NormStates<T> StatesOf(const LayerContext& context) const {
    using A = AccumulateType<T>;
    return {rows_.columns, context.states[kX].as<T>(), context.states[kMean].as<A>(),
            context.states[kInverse].as<A>()};
  }

  const LayerNormConfig config_;
  DType compute_ = DType::kF32;
  Rows rows_;
  int scratch_ = -1;  // state
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateLayerNorm(const LayerNormConfig& config) {
  // 0 would divide a constant row by 0.
  if (!std::isfinite(config.epsilon()) || config.epsilon() <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("epsilon: expected above 0, got %g", config.epsilon()));
  }
  return std::make_unique<LayerNorm>(config);
}

}  // namespace gyre
