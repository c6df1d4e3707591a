// softmax_cross_entropy: the mean over the global batch of l_n = -log softmax(x_n)[t_n].
//
// x: [N, C] scores; t: [N] labels; y: scalar, this rank's share of the mean.  With p = softmax(x)
// and M the global count, dx[n, c] = dy (p[n, c] - [c == t_n]) / M, where l_n counts.  Forward
// saves log p, since exp(log p) costs less than a second pass over the scores.

#include <cmath>

#include "absl/strings/str_format.h"
#include "layers/mean_over_labels.h"

namespace gyre {
namespace {

template <typename T>
struct NegativeLogLikelihood {
  const T* log_p;
  int64_t classes;
  HOST_DEVICE double operator()(int64_t n, int32_t label) const {
    return -static_cast<double>(log_p[n * classes + label]);
  }
};

template <typename T>
struct ScoresGradient {
  Labels labels;
  Normaliser normaliser;
  int64_t classes;
  const T* log_p;
  const T* dy;
  T* dx;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const int64_t n = i / classes, c = i % classes;
    if (!labels.Counts(n)) {
      dx[i] = static_cast<T>(0);
      return;
    }
    const A scale = dy[0], log = log_p[i], target = c == labels.labels[n] ? 1 : 0;
    dx[i] = static_cast<T>(scale * (std::exp(log) - target) / static_cast<A>(normaliser()));
  }
};

class SoftmaxCrossEntropy : public Layer {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    std::optional<int32_t> ignored;
    if (config_.has_ignore_label()) ignored = config_.ignore_label();
    ASSIGN_OR_RETURN(LayerSpec spec, mean_.Infer(input, ignored));
    ASSIGN_OR_RETURN(
        log_softmax_,
        input.primitives->Prepare(LogSoftmaxSpec{
            .dtype = mean_.compute(), .rows = mean_.samples(), .columns = mean_.classes()}));
    log_p_ = static_cast<int>(spec.states.size());
    spec.states.push_back(MakeState("log_softmax", StateKind::kSaved,
                                    Shape{mean_.samples(), mean_.classes()}, mean_.compute(),
                                    kRead | kWrite, InBackward(input, kRead)));
    spec.loss_output = MeanOverLabels::kMean;
    spec.loss_weight = config_.loss_weight();
    // Maximum, subtraction, exponential, sum, subtraction; exponential, subtraction, product,
    // quotient.
    const double elements = static_cast<double>(mean_.samples() * mean_.classes());
    spec.forward_flops = 5 * elements;
    spec.backward_flops = 4 * elements;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (context.phase == 0) {
      const Tensor& log_p = context.states[log_p_];
      RETURN_IF_ERROR(log_softmax_->Forward(
          context.stream, context.states[MeanOverLabels::kScores].data, log_p.data));
      RETURN_IF_ERROR(VisitReal(mean_.compute(), [&]<typename T>() {
        return mean_.Sum(context, NegativeLogLikelihood<T>{log_p.as<T>(), mean_.classes()});
      }));
    }
    return mean_.Finish(context);
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor& dx = context.gradients[MeanOverLabels::kScores];
    if (!dx) return absl::OkStatus();
    return VisitReal(mean_.compute(), [&]<typename T>() {
      return ForEach(
          context.stream, mean_.samples() * mean_.classes(),
          ScoresGradient<T>{mean_.LabelsOf(context), mean_.NormaliserOf(context), mean_.classes(),
                            context.states[log_p_].as<T>(),
                            context.gradients[MeanOverLabels::kMean].as<T>(), dx.as<T>()});
    });
  }

 private:
  const SoftmaxCrossEntropyConfig config_;
  MeanOverLabels mean_;
  int log_p_ = -1;  // state
  std::unique_ptr<LogSoftmax> log_softmax_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateSoftmaxCrossEntropy(
    const SoftmaxCrossEntropyConfig& config) {
  const double weight = config.loss_weight();
  if (!std::isfinite(weight) || weight < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("loss_weight: expected 0 or more, got %g", weight));
  }
  return std::make_unique<SoftmaxCrossEntropy>(config);
}

}  // namespace gyre
