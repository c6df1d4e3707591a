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

class Accuracy : public Layer {
 public:
  explicit Accuracy(const AccuracyConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec, mean_.Infer(input, {.ignored = IgnoredOf(config_)}));
    if (config_.top_k() > mean_.classes()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "top_k: expected at most the %d classes, got %d", mean_.classes(), config_.top_k()));
    }
    for (StateSpec& state : spec.states) state.backward = kNone;
    rank_ = AddState(spec, MakeState("rank", StateKind::kScratch, Shape{mean_.rows()}, DType::kI32,
                                     kRead | kWrite, kNone));
    spec.forward_flops = 2.0 * static_cast<double>(mean_.rows() * mean_.classes());
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (context.phase == 0) {
      int32_t* rank = context.states[rank_].as<int32_t>();
      RETURN_IF_ERROR(VisitReal(mean_.compute(), [&]<typename T>() {
        return ForEachRow(context.stream, mean_.rows(), mean_.classes(),
                          RankOfLabel<T>{{},
                                         mean_.LabelsOf(context),
                                         mean_.classes(),
                                         context.states[MeanOverLabels::kScores].as<T>(),
                                         rank});
      }));
      RETURN_IF_ERROR(mean_.SumLabels(context, Hit{rank, config_.top_k()}));
    }
    return mean_.Finish(context);
  }

  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

 private:
  const AccuracyConfig config_;
  MeanOverLabels mean_;
  int rank_ = -1;  // state
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateAccuracy(const AccuracyConfig& config) {
  RETURN_IF_ERROR(CheckExtent("top_k", config.top_k()));
  return std::make_unique<Accuracy>(config);
}

}  // namespace gyre
