// accuracy: the share of labels that are among the top_k highest scores of their row.
//
// x: [..., C] scores; t: [...] labels; y: scalar, this rank's share.  There is no gradient.
// The lower of two classes with equal scores ranks higher.  A NaN ranks above all numbers, so a
// diverged net never looks right.

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

struct Hit {
  const int32_t* rank;
  int64_t top_k;
  HOST_DEVICE double operator()(int64_t n, int32_t) const { return rank[n] < top_k ? 1 : 0; }
};

class Accuracy : public MeanOverLabels {
 public:
  explicit Accuracy(const AccuracyConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec, InferMean(input, {.ignored = IgnoredOf(config_)}));
    if (config_.top_k() > classes()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "top_k: expected at most the %d classes, got %d", classes(), config_.top_k()));
    }
    for (StateSpec& state : spec.states) state.backward = kNone;
    rank_ = AddState(spec, MakeState("rank", StateKind::kScratch, Shape{rows()}, DType::kI32,
                                     kRead | kWrite, kNone));
    spec.forward_flops = 2.0 * static_cast<double>(rows() * classes());
    return spec;
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    int32_t* rank = context.states[rank_].as<int32_t>();
    RETURN_IF_ERROR(VisitReal(compute(), [&]<typename T>() {
      return ForEachRow(
          context.stream, rows(), classes(),
          RankOfLabel<T>{{}, LabelsOf(context), classes(), context.states[kScores].as<T>(), rank});
    }));
    return SumLabels(context, Hit{rank, config_.top_k()});
  }

  const AccuracyConfig config_;
  int rank_ = -1;  // state
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateAccuracy(const AccuracyConfig& config) {
  RETURN_IF_ERROR(CheckExtent("top_k", config.top_k()));
  return std::make_unique<Accuracy>(config);
}

}  // namespace gyre
