// accuracy: the share of labels that are among the top_k highest scores of their row.
//
// x: [..., C] scores; t: [...] labels or [..., C] distributions; y: scalar, this rank's share.
// There is no gradient.  The lower of two classes with equal scores ranks higher.  A NaN ranks
// above all numbers, so a diverged net never looks right.  A distribution's label is its largest
// share.

#include <cmath>

#include "absl/strings/str_format.h"
#include "layers/common/global_mean.h"

namespace gyre {
namespace {

// rank[n] = how many classes rank above the label's.
template <typename T>
struct RankOfLabel : SumReduction<int32_t> {
  Labels labels;
  int64_t classes;
  const T* scores;
  int32_t* rank;
  HOST_DEVICE int32_t Load(int64_t n, int64_t c) const {
    if (!labels.Counts(n)) return 0;
    const int64_t label = labels.labels[n];
    if (c == label) return 0;
    const AccumulateType<T> other = scores[n * classes + c], own = scores[n * classes + label];
    return !(other <= own) || (other == own && c < label);
  }
  HOST_DEVICE void Store(int64_t n, int32_t above) const { rank[n] = above; }
};

struct ClassShare {
  double value;
  int32_t label;  // -1: a bad share is among them
};

// labels[n] = the class of the largest share of row n, or -1 if a share is bad.
template <typename T>
struct LargestShare {
  using Value = ClassShare;
  int64_t classes;
  const T* shares;
  int32_t* labels;

  HOST_DEVICE ClassShare Identity() const { return {-1, 0}; }
  HOST_DEVICE ClassShare Combine(ClassShare a, ClassShare b) const {
    if (a.label < 0 || b.label < 0) return a.label < 0 ? a : b;
    if (a.value == b.value) return a.label < b.label ? a : b;
    return a.value > b.value ? a : b;
  }
  HOST_DEVICE ClassShare Load(int64_t n, int64_t c) const {
    const auto share = static_cast<double>(static_cast<AccumulateType<T>>(shares[n * classes + c]));
    if (!(share >= 0 && share < static_cast<double>(INFINITY))) return {0, -1};
    return {share, static_cast<int32_t>(c)};
  }
  HOST_DEVICE void Store(int64_t n, ClassShare v) const { labels[n] = v.label; }
};

struct Hit {
  const int32_t* rank;
  int64_t top_k;
  HOST_DEVICE double operator()(int64_t n, int32_t) const { return rank[n] < top_k ? 1 : 0; }
};

class Accuracy : public MeanOverLabels {
 public:
  explicit Accuracy(const AccuracyConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec,
                     InferMean(input, {.ignored = IgnoredOf(config_), .distributions = true}));
    if (config_.top_k() > classes()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "top_k: expected at most the %d classes, got %d", classes(), config_.top_k()));
    }
    for (StateSpec& state : spec.states) state.backward = kNone;
    rank_ = AddState(spec, MakeState("rank", StateKind::kScratch, Shape{rows()}, DType::kI32,
                                     kRead | kWrite, kNone));
    if (has_distributions()) {
      labels_ = AddState(spec, MakeState("largest", StateKind::kScratch, Shape{rows()}, DType::kI32,
                                         kRead | kWrite, kNone));
    }
    spec.forward_flops =
        (has_distributions() ? 3.0 : 2.0) * static_cast<double>(rows() * classes());
    return spec;
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    int32_t* rank = context.states[rank_].as<int32_t>();
    Labels labels = LabelsOf(context);
    RETURN_IF_ERROR(VisitReal(compute(), [&]<typename T>() -> absl::Status {
      if (has_distributions()) {
        auto* const largest = context.states[labels_].as<int32_t>();
        labels.labels = largest;
        RETURN_IF_ERROR(
            ForEachRow(context.stream, rows(), classes(),
                       LargestShare<T>{classes(), context.states[kLabels].as<T>(), largest}));
      }
      return ForEachRow(
          context.stream, rows(), classes(),
          RankOfLabel<T>{{}, labels, classes(), context.states[kScores].as<T>(), rank});
    }));
    return SumLabels(context, labels, Hit{rank, config_.top_k()});
  }

  const AccuracyConfig config_;
  int rank_ = -1, labels_ = -1;  // states
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateAccuracy(const AccuracyConfig& config) {
  RETURN_IF_ERROR(CheckExtent("top_k", config.top_k()));
  return std::make_unique<Accuracy>(config);
}

}  // namespace gyre
