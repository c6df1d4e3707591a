// optimizer.h: turns a parameter's gradient into its next value.  Elementwise, so any layout will
// do; padding of opaque layouts has zero gradients and stays zero.  Immutable.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/training/step_scalars.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// One parameter in device memory; all tensors have equal element counts.
struct ParameterViews {
  Tensor value, gradient;  // of one real type
  // The optimizer's state as slot_names, zero before the first step; of AccumulateDType of it.
  std::span<const Tensor> slots;
  double learning_rate_multiplier = 1, decay_multiplier = 1;
  // Of values of 16 bits, what is updated, in F32: `value` is this, rounded once.  Else null.
  Tensor master = {};
  // Of a table of which only some rows may change: I32 in device memory, those rows, each once
  // (others are negative); its width; and where in it these elements begin.
  Tensor rows = {};
  int64_t width = 0, begin = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> slot_names() const = 0;  // "momentum"
  // Whether an update by a gradient of zeros changes nothing, its slots included.
  virtual bool leaves_untouched(double decay_multiplier) const = 0;
  // Decay and correction of the update of step `step`, from 0, if all before have been made.  Host,
  // before the step.
  virtual void Prepare(uint64_t step, UpdateScalars& scalars) const = 0;
  // Unless update->skip, value <- value - change(gradient * update->gradient_scale + decay *
  // value), for each parameter; all are of one dtype, and one with rows comes alone.  Computed in
  // AccumulateDType of it, by the master where there is one.  update: device memory; read when the
  // stream gets there.  Errors: those of ForEachPart.  Enqueues on stream; every tensor must
  // outlive it.
  virtual absl::Status Update(Stream& stream, const UpdateScalars* update,
                              std::span<const ParameterViews> parameters) const = 0;
};

// SGD with (Nesterov) momentum as in Sutskever et al. 2013:
//   m <- momentum * m + g;  v <- v - lr * (nesterov ? g + momentum * m : m)
// Slots: "momentum", or none where momentum is 0.
std::unique_ptr<Optimizer> NewSgd(const OptimizerConfig::Sgd& config, double weight_decay);

// Adam: Kingma & Ba 2015, arXiv:1412.6980, Algorithm 1.  Slots: "first_moment", "second_moment".
// Weight decay is added to the gradient (L2), hence part of the moments.
std::unique_ptr<Optimizer> NewAdam(const OptimizerConfig::Adam& config, double weight_decay);

// AdamW: Loshchilov & Hutter 2019, arXiv:1711.05101, with the schedule in the learning rate: Adam
// without decay, and v <- v - lr * decay * v beside it.  Slots: Adam's.
std::unique_ptr<Optimizer> NewAdamW(const OptimizerConfig::Adam& config, double weight_decay);

// The kind that is set.  Precondition: the config passed ParseTrainer.
std::unique_ptr<Optimizer> NewOptimizer(const OptimizerConfig& config);

}  // namespace gyre
