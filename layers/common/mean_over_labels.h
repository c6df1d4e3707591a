// mean_over_labels.h: the mean, over the labels of the global batch, of a number that depends on a
// label and its row of scores.  Losses and the accuracy differ only in that number.  A sample has
// one label for each position along its other axes.
//
// Each rank outputs its local sum over the global count, so the ranks' outputs add up to the mean.
// The count is of all labels.  If a label is ignored, it is a statistic that the net sums over
// ranks between phase 0 and phase 1.  A mean over no labels is 0.
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

// Reduces one row of all labels.  Score has double operator()(int64_t n, int32_t label).
template <typename Score>
struct SumOverLabels : SumReduction<SumAndCount> {
  Labels labels;
  Score score;
  double* metric;  // [2]
  double* count;   // [1]; null if no label is ignored
  Fault* fault;
  int layer;

  HOST_DEVICE SumAndCount Load(int64_t, int64_t n) const {
    if (labels.Bad(n)) RaiseFault(fault, layer, labels.SampleOf(n));
    if (!labels.Counts(n)) return {0, 0};
    return {score(n, labels.labels[n]), 1};
  }
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

template <typename Config>
std::optional<int32_t> IgnoredOf(const Config& config) {
  if (!config.has_ignore_label()) return std::nullopt;
  return config.ignore_label();
}

struct MeanOptions {
  std::optional<int32_t> ignored;
  bool binary = false;     // one score for each label, which is 0 or 1
  bool by_sample = false;  // the mean is over samples, whose sums the layer makes
};

class MeanOverLabels {
 public:
  static constexpr int kScores = 0, kLabels = 1, kMean = 2, kMetric = 3;  // states

  // Declares the states above, phases and metric, and a count if a label is ignored.  Errors:
  // inputs other than scores [..., classes] and labels [...].
  absl::StatusOr<LayerSpec> Infer(const InferInput& input, const MeanOptions& options);

  int64_t rows() const { return rows_.count; }  // of scores, one for each label
  int64_t classes() const { return options_.binary ? 2 : rows_.columns; }
  int64_t samples() const { return samples_; }
  DType compute() const { return compute_; }

  Labels LabelsOf(const LayerContext& context) const;
  Normaliser NormaliserOf(const LayerContext& context) const;
  double* CountOf(const LayerContext& context) const;  // null if no label is ignored

  // Fills the metric and the count.  Called in phase 0, after the work that `score` reads from.
  template <typename Score>
  absl::Status Sum(const LayerContext& context, Score score) const {
    if (context.recompute) return absl::OkStatus();
    return ForEachRow(context.stream, 1, rows(),
                      SumOverLabels<Score>{{},
                                           LabelsOf(context),
                                           score,
                                           context.states[kMetric].as<double>(),
                                           CountOf(context),
                                           context.fault,
                                           context.layer});
  }

  // Writes the mean if the phase is the last.  Called at the end of every phase.
  absl::Status Finish(const LayerContext& context) const {
    if (context.phase + 1 < phases()) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, 1,
                     DivideByCount<T>{context.states[kMetric].as<double>(), NormaliserOf(context),
                                      context.states[kMean].as<T>()});
    });
  }

 private:
  int phases() const { return count_ < 0 ? 1 : 2; }

  DType compute_ = DType::kF32;
  Rows rows_;
  int64_t samples_ = 0, inner_ = 0;  // of labels
  double global_count_ = 0;
  MeanOptions options_;
  int count_ = -1;  // state
};

}  // namespace gyre
