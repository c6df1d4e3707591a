// softmax_cross_entropy: the mean over the global batch of l_n = -sum_c q[n, c] log p[n, c], with
// p = softmax(x) and, for a smoothing s, q[n, c] = (1 - s) [c == t_n] + s / C.
//
// x: [..., C] scores; t: [...] labels; y: scalar, this rank's share of the mean.
// With M the global count, dx[n, c] = dy (p[n, c] - q[n, c]) / M if l_n counts.  Forward saves
// log p, since exp(log p) costs less than a second pass over the scores.
// Source of the smoothing: Szegedy et al. 2016, arXiv:1512.00567, section 7.

#include <cmath>

#include "absl/strings/str_format.h"
#include "layers/common/global_mean.h"
#include "layers/common/softmax_pass.h"

namespace gyre {
namespace {

// sums[n] = the sum over c of log p[n, c].
template <typename T>
struct SumOfLogs : SumReduction<double> {
  const T* log_p;
  int64_t classes;
  double* sums;
  HOST_DEVICE double Load(int64_t n, int64_t c) const {
    return static_cast<double>(log_p[n * classes + c]);
  }
  HOST_DEVICE void Store(int64_t n, double sum) const { sums[n] = sum; }
};

template <typename T>
struct NegativeLogLikelihood {
  const T* log_p;
  int64_t classes;
  double smoothing;
  const double* sums;  // null without smoothing
  HOST_DEVICE double operator()(int64_t n, int32_t label) const {
    const double own = -static_cast<double>(log_p[n * classes + label]);
    if (sums == nullptr) return own;
    return (1 - smoothing) * own - smoothing * sums[n] / static_cast<double>(classes);
  }
};

template <typename T>
struct SoftmaxCrossEntropyGradient {
  Labels labels;
  Normaliser normaliser;
  int64_t classes;
  AccumulateType<T> smoothing;
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
    const A scale = dy[0], log = log_p[i], one_hot = c == labels.labels[n] ? 1 : 0;
    const A target = (1 - smoothing) * one_hot + smoothing / static_cast<A>(classes);
    dx[i] = static_cast<T>(scale * (std::exp(log) - target) / static_cast<A>(normaliser()));
  }
};

class SoftmaxCrossEntropy : public MeanOverLabels {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec, InferMean(input, {.ignored = IgnoredOf(config_)}));
    log_p_ = AddState(spec, MakeState("log_softmax", StateKind::kSaved, Shape{rows(), classes()},
                                      compute(), kRead | kWrite, InBackward(input, kRead)));
    if (config_.label_smoothing() > 0) {
      sums_ = AddState(spec, MakeState("sums", StateKind::kScratch, Shape{rows()}, DType::kF64,
                                       kRead | kWrite, kNone));
    }
    DeclareLoss(config_.loss_weight(), spec);
    // Maximum, subtraction, exponential, sum, subtraction; exponential, subtraction, product,
    // quotient.  A smoothing adds the sum of the logarithms.
    const double elements = static_cast<double>(rows() * classes());
    spec.forward_flops = (sums_ < 0 ? 5 : 6) * elements;
    spec.backward_flops = 4 * elements;
    return spec;
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor& dx = context.gradients[kScores];
    if (!dx) return absl::OkStatus();
    return VisitReal(compute(), [&]<typename T>() {
      return ForEach(
          context.stream, rows() * classes(),
          SoftmaxCrossEntropyGradient<T>{LabelsOf(context), NormaliserOf(context), classes(),
                                         static_cast<AccumulateType<T>>(config_.label_smoothing()),
                                         context.states[log_p_].as<T>(),
                                         context.gradients[kMean].as<T>(), dx.as<T>()});
    });
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    const Tensor& log_p = context.states[log_p_];
    const Tensor& scores = context.states[kScores];
    return VisitReal(compute(), [&]<typename T>() -> absl::Status {
      RETURN_IF_ERROR(
          TransformRows(context.stream, rows(), classes(),
                        LogSoftmaxRows<T>{{}, classes(), scores.as<T>(), log_p.as<T>()}));
      double* const sums = sums_ < 0 ? nullptr : context.states[sums_].as<double>();
      if (sums != nullptr) {
        RETURN_IF_ERROR(ForEachRow(context.stream, rows(), classes(),
                                   SumOfLogs<T>{{}, log_p.as<T>(), classes(), sums}));
      }
      return SumLabels(context, NegativeLogLikelihood<T>{log_p.as<T>(), classes(),
                                                         config_.label_smoothing(), sums});
    });
  }

  const SoftmaxCrossEntropyConfig config_;
  int log_p_ = -1, sums_ = -1;  // states
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateSoftmaxCrossEntropy(
    const SoftmaxCrossEntropyConfig& config) {
  RETURN_IF_ERROR(CheckNotNegative("loss_weight", config.loss_weight()));
  RETURN_IF_ERROR(CheckBelowOne("label_smoothing", config.label_smoothing()));
  if (config.label_smoothing() > 0 && (config.perplexity() || config.bits_per_character())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "label_smoothing: the mean of a smoothed loss has no %s; leave one of them out",
        config.perplexity() ? "perplexity" : "bits_per_character"));
  }
  return std::make_unique<SoftmaxCrossEntropy>(config);
}

}  // namespace gyre
