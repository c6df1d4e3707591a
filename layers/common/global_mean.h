// global_mean.h: base of layers whose output is the mean of a number over the terms of the global
// batch.  Losses and the accuracy differ only in that number.  Terms are labels, with their rows of
// scores, or elements or samples.  A sample has one label for each position along its other axes.
//
// Each rank outputs its local sum over the global count, so the ranks' outputs add up to the mean.
// If a term may not count, the count is a statistic that the net sums over ranks between phase 0
// and phase 1.  A mean over no terms is 0.
#pragma once

#include <optional>

#include "engine/runtime/parallel/parallel.h"
#include "layers/interface/infer.h"

namespace gyre {

// A label out of range is bad and does not count.
struct Labels {
  const int32_t* labels;  // [outer, samples, inner]
  int32_t classes;
  bool has_ignored;
  int32_t ignored;
  int64_t samples, inner;

  HOST_DEVICE bool Ignored(int64_t n) const { return has_ignored && labels[n] == ignored; }
  HOST_DEVICE bool Counts(int64_t n) const {
    return !Ignored(n) && labels[n] >= 0 && labels[n] < classes;
  }
  HOST_DEVICE bool Bad(int64_t n) const { return !Ignored(n) && !Counts(n); }
  HOST_DEVICE int64_t SampleOf(int64_t n) const { return n / inner % samples; }
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
    if (labels.Bad(n)) RaiseFault(fault, layer, labels.SampleOf(n));
    if (!labels.Counts(n)) return {0, 0};
    return {score(n, labels.labels[n]), 1};
  }
};

// Reduces one row of all terms.  Term has SumAndCount operator()(int64_t i), 0 if it does not
// count.
template <typename Term>
struct SumOverTerms : SumReduction<SumAndCount> {
  Term term;
  double* metric;  // [2]
  double* count;   // [1]; null if all terms count

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
  static constexpr int kMean = 2, kMetric = 3;  // states

  // Sums in phase 0, and writes the mean in the last phase.
  absl::Status Forward(const LayerContext& context) const override {
    if (context.phase == 0) RETURN_IF_ERROR(SumTerms(context));
    if (count_ >= 0 && context.phase == 0) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, 1,
                     DivideByCount<T>{context.states[kMetric].as<double>(), NormaliserOf(context),
                                      context.states[kMean].as<T>()});
    });
  }
  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

 protected:
  // Ends in Sum.
  virtual absl::Status SumTerms(const LayerContext& context) const = 0;

  // Declares the states above, behind two inputs, phases and metric.  With `counted`, the rule by
  // which terms count (LayerSpec::counted), also a count.  terms: of the global batch.
  void Declare(const InferInput& input, double terms, const std::string& counted, LayerSpec& spec);

  static void DeclareLoss(double weight, LayerSpec& spec) {
    spec.loss_output = kMean;
    spec.loss_weight = weight;
  }

  DType compute() const { return compute_; }
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
    return {{}, term, context.states[kMetric].as<double>(), CountOf(context)};
  }

  DType compute_ = DType::kF32;
  double terms_ = 0;
  int count_ = -1;  // state
};

template <typename Config>
std::optional<int32_t> IgnoredOf(const Config& config) {
  if (!config.has_ignore_label()) return std::nullopt;
  return config.ignore_label();
}

struct LabelOptions {
  std::optional<int32_t> ignored;
  bool binary = false;     // one score for each label, which is 0 or 1
  bool by_sample = false;  // a mean is over samples, whose sums the layer makes
};

// Scores and their labels, the inputs of a layer.
class LabelledScores {
 public:
  static constexpr int kScores = 0, kLabels = 1;  // states

  // Declares the states above.  Errors: inputs other than scores [..., classes] and labels [...].
  absl::StatusOr<LayerSpec> Read(const InferInput& input, const LabelOptions& options);

  int64_t rows() const { return rows_.count; }  // of scores, one for each label
  int64_t classes() const { return options_.binary ? 2 : rows_.columns; }
  int64_t samples() const { return samples_; }
  int64_t positions() const { return positions_; }  // of a sample
  Labels LabelsOf(const LayerContext& context) const;

 private:
  Rows rows_;
  int64_t samples_ = 0, positions_ = 0, inner_ = 0;  // of labels
  LabelOptions options_;
};

class MeanOverLabels : public GlobalMean, protected LabelledScores {
 protected:
  // Declares the scores, the labels and the mean.
  absl::StatusOr<LayerSpec> InferMean(const InferInput& input, const LabelOptions& options);

  // As Sum, of all labels.
  template <typename Score>
  absl::Status SumLabels(const LayerContext& context, Score score) const {
    return Sum(context, rows(),
               LabelTerm<Score>{LabelsOf(context), score, context.fault, context.layer});
  }
};

}  // namespace gyre
