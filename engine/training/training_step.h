// training_step.h: one iteration of training, as the data travels: upload, forward, backward with
// each bucket's reduction under the rest of it, the update gate, the optimizer.  Used by the thread
// that made it.
#pragma once

#include <memory>
#include <optional>

#include "engine/training/evaluation.h"
#include "engine/training/gradient_sync.h"
#include "engine/training/optimizer.h"

namespace gyre {

// What to do about numbers that are not finite.
inline constexpr char kDivergenceAdvice[] =
    "lower learning_rate.base, warm up, or set optimizer.clip_norm";

class TrainingStep {
 public:
  // clip_norm: of all gradients together, if they are to be clipped.  All arguments outlive the
  // result; `stream` belongs to the calling thread.  Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<TrainingStep>> Create(const Model& model,
                                                              const Optimizer& optimizer,
                                                              std::optional<double> clip_norm,
                                                              Device& device, Stream& stream,
                                                              CommunicationThread& communication);

  // Returns once parameters are updated and `batch` may be released.  `scalars` lacks only what the
  // optimizer prepares.  Errors: InvalidArgument for bad data, naming layer and sample; Internal
  // for a gradient that is not finite, naming the parameters of its bucket.
  absl::Status Run(const Batch& batch, const InputMap& inputs, StepScalars scalars);

  // The latest batch's metrics on this rank: F64 {sum, count} for each of MetricsOf.
  Tensor metrics() const { return buffer_.metrics(); }

 private:
  TrainingStep(const Model& model, const Optimizer& optimizer, std::optional<double> clip_norm,
               Stream& stream, Net::SumStatistic sum, StepBuffer buffer)
      : model_(model),
        optimizer_(optimizer),
        clip_norm_(clip_norm),
        stream_(stream),
        sum_statistic_(std::move(sum)),
        buffer_(std::move(buffer)) {}

  absl::Status Update(StepScalars& scalars);
  absl::Status UpdateBucket(int bucket);
  absl::Status NotFinite(int bucket) const;

  const Model& model_;
  const Optimizer& optimizer_;
  const std::optional<double> clip_norm_;
  Stream& stream_;
  const Net::SumStatistic sum_statistic_;
  StepBuffer buffer_;
  std::unique_ptr<GradientSync> sync_;
};

}  // namespace gyre
