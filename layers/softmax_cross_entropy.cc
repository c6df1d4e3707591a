// softmax_cross_entropy: the mean over the global batch of l_n = -sum_c q[n, c] log p[n, c], with
// p = softmax(x).  For a smoothing s, class weights k and samples' weights w, 1 each by default:
//   labels t       q[n, c] = k_c ((1 - s) [c == t_n] + s / C), divided by M = sum_n w_n k_(t_n)
//   distributions  q[n, c] = k_c ((1 - s) t[n, c] + s / C), divided by M = sum_n w_n
//
// x: [..., C] scores; t: [...] labels or [..., C] shares; y: scalar, this rank's share of the mean.
// dx[n, c] = dy w_n (Q_n p[n, c] - q[n, c]) / M if l_n counts, with Q_n = sum_c q[n, c].
// Forward saves log p, since exp(log p) costs less than a second pass over the scores.
// Source of the smoothing: Szegedy et al. 2016, arXiv:1512.00567, section 7.  With class weights or
// distributions it is PyTorch's.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "layers/common/global_mean.h"
#include "layers/common/softmax_pass.h"

namespace gyre {
namespace {

// Some numbers of the config, which reach device memory as a kernel's arguments.
struct Constants {
  static constexpr int64_t kMost = 256;
  double values[kMost];
  double* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = values[i]; }
};

struct ClassWeights {
  const double* weights;  // [classes]; null: 1 each
  double total;
  HOST_DEVICE double Of(int64_t c) const { return weights == nullptr ? 1 : weights[c]; }
};

// q[n, c] and Q_n.
template <typename T>
struct Targets {
  using A = AccumulateType<T>;
  Labels labels;
  const T* shares;       // of distributions; null: labels
  const double* masses;  // Q_n of distributions, or -1 of a bad one
  ClassWeights class_weights;
  A smoothing;
  int64_t classes;

  HOST_DEVICE bool Bad(int64_t n) const {
    return shares == nullptr ? labels.Bad(n) : masses[n] < 0 && labels.weights.Of(n) > 0;
  }
  HOST_DEVICE bool Counts(int64_t n) const {
    if (shares != nullptr) return masses[n] >= 0 && labels.weights.Of(n) > 0;
    return labels.Counts(n) && class_weights.Of(labels.labels[n]) > 0;
  }
  // Precondition, as of Of: n counts.
  HOST_DEVICE A Mass(int64_t n) const {
    if (shares != nullptr) return static_cast<A>(masses[n]);
    if (class_weights.weights == nullptr) return 1;
    return (1 - smoothing) * static_cast<A>(class_weights.Of(labels.labels[n])) +
           smoothing * static_cast<A>(class_weights.total) / static_cast<A>(classes);
  }
  HOST_DEVICE A Of(int64_t n, int64_t c) const {
    A share = 0;
    if (shares != nullptr) {
      share = shares[n * classes + c];
    } else if (c == labels.labels[n]) {
      share = 1;
    }
    return static_cast<A>(class_weights.Of(c)) *
           ((1 - smoothing) * share + smoothing / static_cast<A>(classes));
  }
};

// sums[n] = the sum over c of k_c log p[n, c].
template <typename T>
struct SumOfLogs : SumReduction<double> {
  const T* log_p;
  ClassWeights class_weights;
  int64_t classes;
  double* sums;
  HOST_DEVICE double Load(int64_t n, int64_t c) const {
    const double weight = class_weights.Of(c);
    return weight == 0 ? 0 : weight * static_cast<double>(log_p[n * classes + c]);
  }
  HOST_DEVICE void Store(int64_t n, double sum) const { sums[n] = sum; }
};

// sums[n] = the sum over c of q[n, c] log p[n, c], and masses[n] = Q_n, of distributions.
template <typename T>
struct SumsOfDistribution : SumReduction<SumAndCount> {
  const T* log_p;
  const T* shares;
  ClassWeights class_weights;
  double smoothing;
  int64_t classes;
  double* sums;
  double* masses;
  HOST_DEVICE SumAndCount Load(int64_t n, int64_t c) const {
    const auto share = static_cast<double>(shares[n * classes + c]);
    const bool bad = !(share >= 0 && share < static_cast<double>(INFINITY));
    if (bad) return {0, static_cast<double>(NAN)};
    const double q =
        class_weights.Of(c) * ((1 - smoothing) * share + smoothing / static_cast<double>(classes));
    return {q == 0 ? 0 : q * static_cast<double>(log_p[n * classes + c]), q};
  }
  HOST_DEVICE void Store(int64_t n, SumAndCount v) const {
    sums[n] = v.sum;
    masses[n] = v.count >= 0 ? v.count : -1;
  }
};

template <typename T>
struct CrossEntropyTerm {
  Targets<T> targets;
  const T* log_p;
  double smoothing;
  const double* sums;  // null for labels without smoothing
  Fault* fault;
  int layer;

  HOST_DEVICE SumAndCount operator()(int64_t n) const {
    const SampleWeights& weights = targets.labels.weights;
    if (targets.Bad(n)) RaiseFault(fault, layer, weights.SampleOf(n));
    if (!targets.Counts(n)) return {0, 0};
    const double weight = weights.Of(n);
    if (targets.shares != nullptr) return {-weight * sums[n], weight};
    const int64_t label = targets.labels.labels[n];
    const double of_class = targets.class_weights.Of(label);
    double loss = -of_class * static_cast<double>(log_p[n * targets.classes + label]);
    if (sums != nullptr) {
      loss = (1 - smoothing) * loss - smoothing * sums[n] / static_cast<double>(targets.classes);
    }
    return {weight * loss, weight * of_class};
  }
};

template <typename T>
struct ScoresGradient {
  Targets<T> targets;
  Normaliser normaliser;
  const T* log_p;
  const T* dy;
  T* dx;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const int64_t n = i / targets.classes, c = i % targets.classes;
    const A mass = targets.Counts(n) ? targets.Mass(n) : 0;
    if (mass == 0) {
      dx[i] = static_cast<T>(0);
      return;
    }
    const A scale = dy[0], log = log_p[i];
    const A weight = static_cast<A>(targets.labels.weights.Of(n));
    const A slope = weight * (mass * std::exp(log) - targets.Of(n, c));
    dx[i] = static_cast<T>(scale * slope / static_cast<A>(normaliser()));
  }
};

// dt[n, c] = -dy w_n k_c (1 - s) log p[n, c] / M, of distributions.
template <typename T>
struct SharesGradient {
  Targets<T> targets;
  Normaliser normaliser;
  const T* log_p;
  const T* dy;
  T* dt;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const int64_t n = i / targets.classes, c = i % targets.classes;
    const A weight = static_cast<A>(targets.labels.weights.Of(n) * targets.class_weights.Of(c)) *
                     (1 - targets.smoothing);
    if (!targets.Counts(n) || weight == 0) {
      dt[i] = static_cast<T>(0);
      return;
    }
    const A scale = dy[0], log = log_p[i];
    dt[i] = static_cast<T>(-scale * weight * log / static_cast<A>(normaliser()));
  }
};

class SoftmaxCrossEntropy : public MeanOverLabels {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    const auto& weights = config_.class_weight();
    const bool labels = input.dtypes.size() > kLabels && !IsReal(input.dtypes[kLabels]);
    ASSIGN_OR_RETURN(LayerSpec spec,
                     InferMean(input, {.ignored = IgnoredOf(config_), .distributions = true},
                               labels && !weights.empty()
                                   ? absl::StrCat("class_weight ", absl::StrJoin(weights, " "))
                                   : ""));
    if (!weights.empty() && weights.size() != classes()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "class_weight: expected %d, one for each class, got %d", classes(), weights.size()));
    }
    const uint8_t read = InBackward(input, kRead);
    log_p_ = AddState(spec, MakeState("log_softmax", StateKind::kSaved, Shape{rows(), classes()},
                                      compute(), kRead | kWrite, read));
    if (config_.label_smoothing() > 0 || has_distributions()) {
      sums_ = AddState(spec, MakeState("sums", StateKind::kScratch, Shape{rows()}, DType::kF64,
                                       kRead | kWrite, kNone));
    }
    if (has_distributions()) {
      masses_ = AddState(spec, MakeState("masses", StateKind::kSaved, Shape{rows()}, DType::kF64,
                                         kRead | kWrite, read));
    }
    if (!weights.empty()) {
      class_weights_ =
          AddState(spec, MakeState("class_weights", StateKind::kSaved, Shape{classes()},
                                   DType::kF64, kRead | kWrite, read));
    }
    DeclareLoss(config_.loss_weight(), spec);
    // Maximum, subtraction, exponential, sum, subtraction; exponential, subtraction, product,
    // quotient.  A smoothing adds the sum of the logarithms, distributions their sum and products.
    const double elements = static_cast<double>(rows() * classes());
    spec.forward_flops = (has_distributions() ? 9 : sums_ < 0 ? 5 : 6) * elements;
    spec.backward_flops = (has_distributions() ? 6 : 4) * elements;
    return spec;
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor &dx = context.gradients[kScores], &dt = context.gradients[kLabels];
    return VisitReal(compute(), [&]<typename T>() -> absl::Status {
      const Targets<T> targets = TargetsOf<T>(context);
      const T* const log_p = context.states[log_p_].as<T>();
      const T* const dy = MeanGradient(context).as<T>();
      if (dx) {
        RETURN_IF_ERROR(
            ForEach(context.stream, rows() * classes(),
                    ScoresGradient<T>{targets, NormaliserOf(context), log_p, dy, dx.as<T>()}));
      }
      if (!dt || !has_distributions()) return absl::OkStatus();
      return ForEach(context.stream, rows() * classes(),
                     SharesGradient<T>{targets, NormaliserOf(context), log_p, dy, dt.as<T>()});
    });
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    RETURN_IF_ERROR(WriteClassWeights(context));
    const ClassWeights weights = ClassWeightsOf(context);
    const Tensor& scores = context.states[kScores];
    auto* const sums = static_cast<double*>(context.data(sums_));
    return VisitReal(compute(), [&]<typename T>() -> absl::Status {
      T* const log_p = context.states[log_p_].as<T>();
      RETURN_IF_ERROR(TransformRows(context.stream, rows(), classes(),
                                    LogSoftmaxRows<T>{{}, classes(), scores.as<T>(), log_p}));
      const Targets<T> targets = TargetsOf<T>(context);
      if (has_distributions()) {
        RETURN_IF_ERROR(ForEachRow(context.stream, rows(), classes(),
                                   SumsOfDistribution<T>{{},
                                                         log_p,
                                                         targets.shares,
                                                         weights,
                                                         config_.label_smoothing(),
                                                         classes(),
                                                         sums,
                                                         context.states[masses_].as<double>()}));
      } else if (sums != nullptr) {
        RETURN_IF_ERROR(ForEachRow(context.stream, rows(), classes(),
                                   SumOfLogs<T>{{}, log_p, weights, classes(), sums}));
      }
      return Sum(context, rows(),
                 CrossEntropyTerm<T>{targets, log_p, config_.label_smoothing(), sums, context.fault,
                                     context.layer});
    });
  }

  absl::Status WriteClassWeights(const LayerContext& context) const {
    auto* const to = static_cast<double*>(context.data(class_weights_));
    const int64_t count = config_.class_weight_size();
    for (int64_t first = 0; first < count; first += Constants::kMost) {
      const int64_t some = std::min(count - first, Constants::kMost);
      Constants constants{.values = {}, .to = to + first};
      std::copy_n(config_.class_weight().begin() + first, some, constants.values);
      RETURN_IF_ERROR(ForEach(context.stream, some, constants));
    }
    return absl::OkStatus();
  }

  ClassWeights ClassWeightsOf(const LayerContext& context) const {
    const auto& all = config_.class_weight();
    return {static_cast<const double*>(context.data(class_weights_)),
            std::accumulate(all.begin(), all.end(), 0.0)};
  }

  template <typename T>
  Targets<T> TargetsOf(const LayerContext& context) const {
    const Tensor& targets = context.states[kLabels];
    const bool shares = has_distributions();
    return {.labels = LabelsOf(context),
            .shares = shares ? targets.as<T>() : nullptr,
            .masses = static_cast<const double*>(context.data(masses_)),
            .class_weights = ClassWeightsOf(context),
            .smoothing = static_cast<AccumulateType<T>>(config_.label_smoothing()),
            .classes = classes()};
  }

  const SoftmaxCrossEntropyConfig config_;
  int log_p_ = -1, sums_ = -1, masses_ = -1, class_weights_ = -1;  // states
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateSoftmaxCrossEntropy(
    const SoftmaxCrossEntropyConfig& config) {
  RETURN_IF_ERROR(CheckNotNegative("loss_weight", config.loss_weight()));
  RETURN_IF_ERROR(CheckBelowOne("label_smoothing", config.label_smoothing()));
  for (const double weight : config.class_weight()) {
    RETURN_IF_ERROR(CheckNotNegative("class_weight", weight));
  }
  if (config.label_smoothing() > 0 && (config.perplexity() || config.bits_per_character())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "label_smoothing: the mean of a smoothed loss has no %s; leave one of them out",
        config.perplexity() ? "perplexity" : "bits_per_character"));
  }
  return std::make_unique<SoftmaxCrossEntropy>(config);
}

}  // namespace gyre
