// global_mean.h: base of layers whose output is the mean of a number over the terms of the global
// batch.  Losses and the accuracy differ only in that number.  Terms are labels, with their rows of
// scores, or elements or samples.  A sample has one label for each position along its other axes.
//
// Each rank outputs its local sum over the global count, so the ranks' outputs add up to the mean.
// If a term may not count, or samples have weights, the count is a statistic that the net sums over
// ranks between phase 0 and phase 1.  A mean over no terms is 0.
//
// A weight is of all terms of its sample.  The mean is sum(w l) / sum(w), and the count is sum(w).
// Terms of weight 0 are not looked at.  Weights of 1 give the bits of no weights.
#pragma once

#include <optional>

#include "engine/runtime/parallel/parallel.h"
#include "layers/interface/infer.h"

namespace gyre {

// Weights of terms [outer, samples, inner].
struct SampleWeights {
  int64_t samples, inner;
  const double* weights = nullptr;  // [samples], 0 or more; null: 1 each

  HOST_DEVICE int64_t SampleOf(int64_t n) const { return n / inner % samples; }
  HOST_DEVICE double Of(int64_t n) const { return weights == nullptr ? 1 : weights[SampleOf(n)]; }
};

// A label out of range is bad and does not count.
struct Labels {
  const int32_t* labels;
  int32_t classes;
  bool has_ignored;
  int32_t ignored;
  SampleWeights weights;

  HOST_DEVICE bool LeftOut(int64_t n) const {
    return (has_ignored && labels[n] == ignored) || weights.Of(n) == 0;
  }
  HOST_DEVICE bool InRange(int64_t n) const { return labels[n] >= 0 && labels[n] < classes; }
  HOST_DEVICE bool Counts(int64_t n) const { return !LeftOut(n) && InRange(n); }
  HOST_DEVICE bool Bad(int64_t n) const { return !LeftOut(n) && !InRange(n); }
};

struct SumAndCount {
  double sum = 0, count = 0;

  HOST_DEVICE SumAndCount operator+(SumAndCount other) const {
    return {sum + other.sum, count + other.count};
  }
};

// The term of a label.  Score has double operator()(int64_t n, int32_t label).
template <typename Score>
struct LabelTerm {
  Labels labels;
  Score score;
  Fault* fault;
  int layer;

  HOST_DEVICE SumAndCount operator()(int64_t n) const {
    if (labels.Bad(n)) RaiseFault(fault, layer, labels.weights.SampleOf(n));
    if (!labels.Counts(n)) return {0, 0};
    const double weight = labels.weights.Of(n);
    return {weight * score(n, labels.labels[n]), weight};
  }
};

// Reduces one row of all terms.  Term has SumAndCount operator()(int64_t i), 0 if it does not
// count.
template <typename Term>
struct SumOverTerms : SumReduction<SumAndCount> {
  Term term;
  double* metric;  // [2]
  double* count;   // [1]; null if each term counts 1

  HOST_DEVICE SumAndCount Load(int64_t, int64_t i) const { return term(i); }
  HOST_DEVICE void Store(int64_t, SumAndCount v) const {
    metric[0] = v.sum;
    metric[1] = v.count;
    if (count != nullptr) count[0] = v.count;
  }
};

// The global count, known when a kernel runs.
struct Normaliser {
  double all;
  const double* count;  // null: all
  HOST_DEVICE double operator()() const { return count != nullptr ? count[0] : all; }
};

template <typename T>
struct DivideByCount {
  const double* metric;
  Normaliser normaliser;
  T* mean;
  HOST_DEVICE void operator()(int64_t) const {
    mean[0] = static_cast<T>(normaliser() > 0 ? metric[0] / normaliser() : 0);
  }
};

class GlobalMean : public Layer {
 public:
  static constexpr int kWeights = 2;  // the input that may be absent

  // Sums in phase 0, and writes the mean in the last phase.
  absl::Status Forward(const LayerContext& context) const override {
    if (context.phase == 0) {
      RETURN_IF_ERROR(ReadWeights(context));
      RETURN_IF_ERROR(SumTerms(context));
    }
    if (count_ >= 0 && context.phase == 0) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, 1,
                     DivideByCount<T>{context.states[metric_].as<double>(), NormaliserOf(context),
                                      context.states[mean_].as<T>()});
    });
  }
  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

 protected:
  // Ends in Sum.
  virtual absl::Status SumTerms(const LayerContext& context) const = 0;

  // Declares weights, if they are an input, behind two others.  Then the mean, the metric and
  // phases.  counted: the rule by which labels or targets count (LayerSpec::counted), or "".  With
  // it or weights there is a count, too.  terms: of the global batch.
  // Errors: weights other than [samples], or that a trained layer makes.
  absl::Status Declare(const InferInput& input, double terms, const std::string& counted,
                       LayerSpec& spec);

  void DeclareLoss(double weight, LayerSpec& spec) const {
    spec.loss_output = mean_;
    spec.loss_weight = weight;
  }

  DType compute() const { return compute_; }
  Tensor MeanGradient(const LayerContext& context) const { return context.gradients[mean_]; }
  // [samples], null without weights.
  const double* WeightsOf(const LayerContext& context) const {
    return static_cast<const double*>(context.data(weights_));
  }
  Normaliser NormaliserOf(const LayerContext& context) const { return {terms_, CountOf(context)}; }

  // Fills the metric and the count, after the work that `term` reads from.  Its scratch is
  // ForEachRow's.
  template <typename Term>
  absl::Status Sum(const LayerContext& context, int64_t terms, Term term) const {
    if (context.recompute) return absl::OkStatus();
    return ForEachRow(context.stream, 1, terms, Reduction(context, term));
  }
  template <typename Term>
  absl::Status Sum(const LayerContext& context, int64_t terms, Term term, void* scratch) const {
    if (context.recompute) return absl::OkStatus();
    return ForEachRow(context.stream, 1, terms, Reduction(context, term), scratch);
  }

 private:
  double* CountOf(const LayerContext& context) const {
    return count_ < 0 ? nullptr : context.states[count_].as<double>();
  }
  template <typename Term>
  SumOverTerms<Term> Reduction(const LayerContext& context, Term term) const {
    return {{}, term, context.states[metric_].as<double>(), CountOf(context)};
  }
  absl::Status ReadWeights(const LayerContext& context) const;

  DType compute_ = DType::kF32;
  double terms_ = 0;
  int mean_ = -1, metric_ = -1, count_ = -1, weights_ = -1;  // states
};

// The input but for the weights.
InferInput WithoutWeights(const InferInput& input);

template <typename Config>
std::optional<int32_t> IgnoredOf(const Config& config) {
  if (!config.has_ignore_label()) return std::nullopt;
  return config.ignore_label();
}

struct LabelOptions {
  std::optional<int32_t> ignored;
  bool binary = false;         // one score for each label, which is 0 or 1
  bool by_sample = false;      // a mean is over samples, whose sums the layer makes
  bool distributions = false;  // labels may be shares of the classes [..., classes], too
};

// Scores and their labels or distributions, the first inputs of a layer.
class LabelledScores {
 public:
  static constexpr int kScores = 0, kLabels = 1;  // states

  // Declares the states above.  Errors: inputs other than scores [..., classes] and labels [...],
  // or distributions if the options say so.
  absl::StatusOr<LayerSpec> Read(const InferInput& input, const LabelOptions& options);

  int64_t rows() const { return rows_.count; }  // of scores, one for each label
  int64_t classes() const { return options_.binary ? 2 : rows_.columns; }
  int64_t samples() const { return samples_; }
  int64_t positions() const { return positions_; }  // of a sample
  bool has_distributions() const { return has_distributions_; }
  // Of I32 labels.  weights: [samples], or null.
  Labels LabelsOf(const int32_t* labels, const double* weights) const;

 private:
  Rows rows_;
  int64_t samples_ = 0, positions_ = 0, inner_ = 0;  // of labels
  bool has_distributions_ = false;
  LabelOptions options_;
};

class MeanOverLabels : public GlobalMean, protected LabelledScores {
 protected:
  // Declares the scores, the labels and the mean.  counted: a rule beside the ignored label's.
  absl::StatusOr<LayerSpec> InferMean(const InferInput& input, const LabelOptions& options,
                                      const std::string& counted = "");

  // Their pointer is null for distributions.
  Labels LabelsOf(const LayerContext& context) const {
    const int32_t* const labels =
        has_distributions() ? nullptr : context.states[kLabels].as<int32_t>();
    return LabelledScores::LabelsOf(labels, WeightsOf(context));
  }

  // As Sum, of all labels.
  template <typename Score>
  absl::Status SumLabels(const LayerContext& context, Score score) const {
    return SumLabels(context, LabelsOf(context), score);
  }
  template <typename Score>
  absl::Status SumLabels(const LayerContext& context, const Labels& labels, Score score) const {
    return Sum(context, rows(), LabelTerm<Score>{labels, score, context.fault, context.layer});
  }
};

}  // namespace gyre
