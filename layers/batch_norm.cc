// batch_norm: each channel to mean 0 and variance 1, times scale, plus bias.
//
// x, y: [..., C].  With M elements a channel, their mean m and variance v over the batch, and
// h = (x - m) / sqrt(v + epsilon):
//   y = scale h + bias,  dscale = sum dy h,  dbias = sum dy,
//   dx = scale / sqrt(v + epsilon) (dy - dbias / M - h dscale / M).
//
// Both y and dx are linear in x - m and dy, so a pass has few operations.  If they were linear in
// x, a constant channel would keep the rounding error of scale x / sqrt(epsilon).  Sums are F64.
// The variance is the mean of squares less the square of the mean.
// A library may serve instead, for the statistics of one rank, if dx is needed and there is no ReLU
// to apply.  A library's ReLU might not hand a NaN on.
// Source: Ioffe & Szegedy 2015, arXiv:1502.03167.  The running variance is the unbiased one, as in
// other frameworks.

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/parallel/two_sums.h"
#include "layers/common/output_relu.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kScale = 2, kBias = 3, kRunningMean = 4, kRunningVariance = 5,
              kCoefficients = 6;  // states; of a library its scratch; in training also:
constexpr int kMean = 7, kInverse = 8, kSums = 9, kGradientSums = 10, kDataGradient = 11;

// sums: [2, C].
template <typename T>
struct SumValues : SumReduction<TwoSums<double>> {
  int64_t channels;
  const T* x;
  double* sums;
  HOST_DEVICE TwoSums<double> Load(int64_t row, int64_t c) const {
    const double v = static_cast<AccumulateType<T>>(x[row * channels + c]);
    return {v, v * v};
  }
  HOST_DEVICE void Store(int64_t c, TwoSums<double> v) const {
    sums[c] = v.first;
    sums[channels + c] = v.second;
  }
};

// y = by (x - mean) + plus.
template <typename A>
struct Coefficients {
  const A* mean;
  A* by;
  A* plus;

  HOST_DEVICE A operator()(int64_t c, A x) const { return by[c] * (x - mean[c]) + plus[c]; }
};

template <typename T, typename A>
struct NormaliseByBatch {
  int64_t channels;
  double count, epsilon, momentum;
  const double* sums;
  const T *scale, *bias;
  A *mean, *inverse;                   // saved
  A *running_mean, *running_variance;  // null: not to be written
  Coefficients<A> to;
  HOST_DEVICE void operator()(int64_t c) const {
    const double m = count > 0 ? sums[c] / count : 0;
    const double square = count > 0 ? sums[channels + c] / count - m * m : 0;
    const double v = square < 0 ? 0 : square;
    const double by = 1 / std::sqrt(v + epsilon);
    mean[c] = static_cast<A>(m);
    inverse[c] = static_cast<A>(by);
    const double s = static_cast<A>(scale[c]);
    to.by[c] = static_cast<A>(s * by);
    to.plus[c] = static_cast<A>(bias[c]);
    if (running_mean == nullptr || count == 0) return;
    const double unbiased = count > 1 ? v * count / (count - 1) : v;
    running_mean[c] = static_cast<A>((1 - momentum) * running_mean[c] + momentum * m);
    running_variance[c] =
        static_cast<A>((1 - momentum) * running_variance[c] + momentum * unbiased);
  }
};

template <typename T, typename A>
struct NormaliseByRunning {
  double epsilon;
  const T *scale, *bias;
  const A* running_variance;
  Coefficients<A> to;
  HOST_DEVICE void operator()(int64_t c) const {
    const double by =
        static_cast<A>(scale[c]) / std::sqrt(static_cast<double>(running_variance[c]) + epsilon);
    to.by[c] = static_cast<A>(by);
    to.plus[c] = static_cast<A>(bias[c]);
  }
};

template <typename T, typename A, typename Output>
struct Apply {
  int64_t channels;
  Coefficients<A> with;
  Output output;
  const T* x;
  T* y;
  HOST_DEVICE T Load(int64_t row, int64_t c) const {
    return static_cast<T>(output(with(c, static_cast<A>(x[row * channels + c]))));
  }
  HOST_DEVICE void Store(int64_t row, int64_t c, T v) const { y[row * channels + c] = v; }
};

// The gradient before the activation that forward applied.  Computing y again costs less than
// reading it.
template <typename T, typename A, typename Output>
struct OutputGradient {
  Coefficients<A> applied;
  Output output;
  const T *x, *dy;
  HOST_DEVICE A operator()(int64_t i, int64_t c) const {
    const A g = static_cast<A>(dy[i]);  // in any case: no load waits for another
    const A v = applied(c, static_cast<A>(x[i]));
    return output.Passes(static_cast<T>(output(v))) ? g : A{0};
  }
};

// dbias and dscale over this rank's samples.
template <typename T, typename A, typename Output>
struct SumGradients : SumReduction<TwoSums<double>> {
  int64_t channels;
  OutputGradient<T, A, Output> gradient;
  const A *mean, *inverse;
  double* sums;
  T *dscale, *dbias;  // null: not wanted
  HOST_DEVICE TwoSums<double> Load(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    const A g = gradient(i, c);
    const A h = (static_cast<A>(gradient.x[i]) - mean[c]) * inverse[c];
    return {static_cast<double>(g), static_cast<double>(g * h)};
  }
  HOST_DEVICE void Store(int64_t c, TwoSums<double> v) const {
    sums[c] = v.first;
    sums[channels + c] = v.second;
    if (dbias != nullptr) dbias[c] = static_cast<T>(static_cast<A>(v.first));
    if (dscale != nullptr) dscale[c] = static_cast<T>(static_cast<A>(v.second));
  }
};

// dx = by dy + by_x (x - mean) + plus.
template <typename T, typename A>
struct FindDataGradient {
  int64_t channels;
  double count;
  const double* sums;
  const T* scale;
  const A* inverse;
  A *by, *by_x, *plus;
  HOST_DEVICE void operator()(int64_t c) const {
    const double g = static_cast<double>(static_cast<A>(scale[c])) * inverse[c];
    const double of_x = count > 0 ? -g * inverse[c] * sums[channels + c] / count : 0;
    by[c] = static_cast<A>(g);
    by_x[c] = static_cast<A>(of_x);
    plus[c] = static_cast<A>(count > 0 ? -g * sums[c] / count : 0);
  }
};

template <typename T, typename A, typename Output>
struct ApplyBackward {
  int64_t channels;
  const A *mean, *by, *by_x, *plus;
  OutputGradient<T, A, Output> gradient;
  T* dx;
  HOST_DEVICE T Load(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    const A centred = static_cast<A>(gradient.x[i]) - mean[c];
    return static_cast<T>(by[c] * gradient(i, c) + by_x[c] * centred + plus[c]);
  }
  HOST_DEVICE void Store(int64_t row, int64_t c, T v) const { dx[row * channels + c] = v; }
};

class BatchNormLayer : public Layer {
 public:
  explicit BatchNormLayer(const BatchNormConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& x = input.inputs[0];
    RETURN_IF_ERROR(SampleElements(input).status());
    if (x.rank() < 2 || BatchAxis(input, kX) == x.rank() - 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects inputs [N, ..., channels], got %s", x.ToString()));
    }
    compute_ = input.compute;
    train_ = input.train;
    relu_ = input.output_activation == Activation::kRelu;
    max_ = input.output_max;
    channels_ = x[x.rank() - 1];
    rows_ = x.elements(0, x.rank() - 1);
    phases_ = train_ && config_.synchronised() ? 2 : 1;
    if (config_.synchronised()) {
      // Of one sample; there may be none here.
      const double rows =
          static_cast<double>(x.With(BatchAxis(input, kX), 1).elements(0, x.rank() - 1));
      count_ = rows * static_cast<double>(input.global_batch);
    } else {
      count_ = static_cast<double>(rows_);
    }
    RETURN_IF_ERROR(AskLibraries(input));
    return Declare(input, x);
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (library_ != nullptr) return ForwardByLibrary(context);
    return VisitReal(compute_, [&]<typename T>() { return ForwardAs<T>(context); });
  }
  absl::Status Backward(const LayerContext& context) const override {
    if (library_ != nullptr) return BackwardByLibrary(context);
    return VisitReal(compute_, [&]<typename T>() { return BackwardAs<T>(context); });
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const bool rows = onnx.shape(kX).rank() == 2;
    const OnnxForm form{rows ? OnnxForm::kRows : OnnxForm::kChannelsFirst};
    onnx.Output(0,
                onnx.Node("BatchNormalization",
                          {onnx.Input(kX, form), onnx.Parameter("scale"), onnx.Parameter("bias"),
                           onnx.Parameter("running_mean"), onnx.Parameter("running_variance")},
                          {{"epsilon", static_cast<float>(config_.epsilon())}}),
                form);
    return absl::OkStatus();
  }

 private:
  absl::Status AskLibraries(const InferInput& input) {
    if (!train_ || config_.synchronised() || relu_ || !NeedsGradient(input, kX)) {
      return absl::OkStatus();
    }
    auto prepared = input.primitives->Prepare(BatchNormSpec{.dtype = compute_,
                                                            .rows = rows_,
                                                            .channels = channels_,
                                                            .epsilon = config_.epsilon(),
                                                            .momentum = config_.momentum()});
    if (absl::IsUnimplemented(prepared.status())) return absl::OkStatus();
    RETURN_IF_ERROR(prepared.status());
    library_ = *std::move(prepared);
    return absl::OkStatus();
  }

  absl::StatusOr<LayerSpec> Declare(const InferInput& input, const Shape& x) {
    const DType accumulate = AccumulateDType(compute_);
    const Shape per_channel{channels_}, two{2, channels_};
    const uint8_t both = kRead | kWrite, in_backward = InBackward(input, kRead);
    const uint8_t buffer = train_ ? both : uint8_t{kRead};
    ASSIGN_OR_RETURN(
        StateSpec scale,
        MakeParameter("scale", per_channel, config_.scale(),
                      {.value = 1, .fan_in = channels_, .fan_out = channels_}, input, in_backward));
    ASSIGN_OR_RETURN(StateSpec bias,
                     MakeParameter("bias", per_channel, config_.bias(),
                                   {.fan_in = channels_, .fan_out = channels_}, input, kNone));
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, x, compute_, kRead, in_backward),
                   MakeOutput(input, x, kNone),
                   scale,
                   bias,
                   MakeBuffer("running_mean", per_channel, accumulate, 0, buffer),
                   MakeBuffer("running_variance", per_channel, accumulate, 1, buffer),
                   MakeState("coefficients", train_ ? StateKind::kSaved : StateKind::kScratch, two,
                             accumulate, both, in_backward)};
    spec.applied_activation = spec.applied_backward = spec.cheap = true;
    if (library_ == nullptr) spec.aliases = {{.output = kY, .input = kX, .must = false}};
    const auto elements = static_cast<double>(x.elements());
    spec.forward_flops = (train_ ? 5 : 2) * elements;
    spec.backward_flops = 9 * elements;
    if (!train_) return spec;
    spec.states.push_back(
        MakeState("mean", StateKind::kSaved, per_channel, accumulate, both, kRead));
    spec.states.push_back(
        MakeState("inverse_deviation", StateKind::kSaved, per_channel, accumulate, both, kRead));
    if (library_ != nullptr) {
      spec.states[kCoefficients] =
          MakeBytes("scratch", StateKind::kScratch, library_->scratch_bytes(), both, both);
      return spec;
    }
    spec.states.push_back(MakeState("sums", StateKind::kStatistic, two, DType::kF64, both, kNone));
    spec.states.push_back(
        MakeState("gradient_sums", StateKind::kStatistic, two, DType::kF64, kNone, both));
    spec.states.push_back(MakeState("data_gradient", StateKind::kScratch, Shape{3, channels_},
                                    accumulate, kNone, both));
    spec.forward_phases = spec.backward_phases = phases_;
    scratch_ = AddScratch(
        spec, OnGpu(input, ReduceColumnsScratch<SumValues<float>>(rows_, channels_)), both, both);
    if (config_.synchronised()) {
      spec.states[kSums].summed_after = 0;
      spec.states[kGradientSums].summed_after_backward = 0;
    }
    return spec;
  }

  absl::Status ForwardByLibrary(const LayerContext& context) const {
    const std::span<const Tensor> states = context.states;
    const auto running = [&](int state) {
      return context.recompute ? nullptr : states[state].data;
    };
    return library_->Forward(context.stream, states[kX].data, states[kScale].data,
                             states[kBias].data, states[kY].data, states[kMean].data,
                             states[kInverse].data, running(kRunningMean),
                             running(kRunningVariance), states[kCoefficients].data);
  }

  absl::Status BackwardByLibrary(const LayerContext& context) const {
    const std::span<const Tensor> states = context.states, gradients = context.gradients;
    return library_->Backward(context.stream, states[kX].data, gradients[kY].data,
                              states[kScale].data, states[kMean].data, states[kInverse].data,
                              gradients[kX].data, gradients[kScale].data, gradients[kBias].data,
                              states[kCoefficients].data);
  }

  template <typename T>
  absl::Status ForwardAs(const LayerContext& context) const {
    using A = AccumulateType<T>;
    Stream& stream = context.stream;
    const std::span<const Tensor> states = context.states;
    if (train_ && context.phase == 0 && !context.recompute) {
      RETURN_IF_ERROR(
          ReduceColumns(stream, rows_, channels_,
                        SumValues<T>{{}, channels_, states[kX].as<T>(), states[kSums].as<double>()},
                        context.data(scratch_)));
    }
    if (context.phase + 1 < phases_) return absl::OkStatus();
    const Coefficients<A> to = CoefficientsOf<A>(context);
    if (train_) {
      A* const none = nullptr;
      RETURN_IF_ERROR(ForEach(
          stream, channels_,
          NormaliseByBatch<T, A>{
              channels_, count_, config_.epsilon(), config_.momentum(), states[kSums].as<double>(),
              states[kScale].as<T>(), states[kBias].as<T>(), states[kMean].as<A>(),
              states[kInverse].as<A>(), context.recompute ? none : states[kRunningMean].as<A>(),
              context.recompute ? none : states[kRunningVariance].as<A>(), to}));
    } else {
      RETURN_IF_ERROR(ForEach(
          stream, channels_,
          NormaliseByRunning<T, A>{config_.epsilon(), states[kScale].as<T>(), states[kBias].as<T>(),
                                   states[kRunningVariance].as<A>(), to}));
    }
    const T* const x = states[kX].as<T>();
    T* const y = states[kY].as<T>();
    return VisitOutput<T>([&]<typename Output>(Output output) {
      return ForEachCell(stream, rows_, channels_,
                         Apply<T, A, Output>{channels_, to, output, x, y});
    });
  }

  template <typename A>
  Coefficients<A> CoefficientsOf(const LayerContext& context) const {
    A* const coefficients = context.states[kCoefficients].as<A>();
    const A* const mean = context.states[train_ ? kMean : kRunningMean].as<A>();
    return {mean, coefficients, coefficients + channels_};
  }

  // f(the functor of what is done to the output).
  template <typename T, typename F>
  absl::Status VisitOutput(const F& f) const {
    return relu_ ? f(OutputRelu<T>(max_)) : f(PlainOutput<T>{});
  }

  template <typename T>
  static T* Wanted(const Tensor& gradient) {
    return gradient ? gradient.as<T>() : nullptr;
  }

  template <typename T>
  absl::Status BackwardAs(const LayerContext& context) const {
    return VisitOutput<T>(
        [&]<typename Output>(Output output) { return BackwardAs<T>(context, output); });
  }

  template <typename T, typename Output>
  absl::Status BackwardAs(const LayerContext& context, Output output) const {
    using A = AccumulateType<T>;
    Stream& stream = context.stream;
    const std::span<const Tensor> states = context.states, gradients = context.gradients;
    const OutputGradient<T, A, Output> gradient{CoefficientsOf<A>(context), output,
                                                states[kX].as<T>(), gradients[kY].as<T>()};
    const A *mean = states[kMean].as<A>(), *inverse = states[kInverse].as<A>();
    double* const sums = states[kGradientSums].as<double>();
    if (context.phase == 0) {
      RETURN_IF_ERROR(ReduceColumns(stream, rows_, channels_,
                                    SumGradients<T, A, Output>{{},
                                                               channels_,
                                                               gradient,
                                                               mean,
                                                               inverse,
                                                               sums,
                                                               Wanted<T>(gradients[kScale]),
                                                               Wanted<T>(gradients[kBias])},
                                    context.data(scratch_)));
    }
    if (context.phase + 1 < phases_ || !gradients[kX]) return absl::OkStatus();
    A* const by = states[kDataGradient].as<A>();
    A *by_x = by + channels_, *plus = by_x + channels_;
    RETURN_IF_ERROR(ForEach(stream, channels_,
                            FindDataGradient<T, A>{channels_, count_, sums, states[kScale].as<T>(),
                                                   inverse, by, by_x, plus}));
    return ForEachCell(stream, rows_, channels_,
                       ApplyBackward<T, A, Output>{channels_, mean, by, by_x, plus, gradient,
                                                   gradients[kX].as<T>()});
  }

  const BatchNormConfig config_;
  std::shared_ptr<const BatchNorm> library_;  // null: the kernels here
  DType compute_ = DType::kF32;
  bool train_ = true, relu_ = false;
  double max_ = 0;                 // of the ReLU
  int phases_ = 1, scratch_ = -1;  // scratch_: of the sums, a state
  int64_t rows_ = 0, channels_ = 0;
  double count_ = 0;  // elements of a channel, over the batch that it is normalised by
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateBatchNorm(const BatchNormConfig& config) {
  if (!(config.momentum() >= 0 && config.momentum() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("momentum: expected 0 to 1, got %g", config.momentum()));
  }
  if (!(config.epsilon() > 0 && std::isfinite(config.epsilon()))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("epsilon: expected more than 0, got %g", config.epsilon()));
  }
  return std::make_unique<BatchNormLayer>(config);
}

}  // namespace gyre
