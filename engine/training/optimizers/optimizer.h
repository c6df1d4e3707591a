// optimizer.h: turns a parameter's gradient into its next value.  Works by element, so any layout
// will do.  The padding of opaque layouts has zero gradients and stays zero.  Immutable.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/training/step_scalars.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// One parameter in device memory.  Tensors have equal element counts.
struct ParameterViews {
  Tensor value, gradient;  // of one real type
  // Optimizer slots in the order of slot_names, of AccumulateDType, zero before the first step.
  std::span<const Tensor> slots;
  double learning_rate_multiplier = 1, decay_multiplier = 1;
  int group = 0;  // of UpdateGroups
  // For values of 16 bits, the F32 that is updated.  `value` is its rounding.  May be null.
  Tensor master = {};
  // For a table of which only some rows change.  `rows` lists each of them once, as I32 in device
  // memory, and negative entries are skipped.  A row has `width` elements.  This view starts at
  // element `begin` of the table.
  Tensor rows = {};
  int64_t width = 0, begin = 0;
  ParameterNorms norms = {};  // where Measure writes and Update reads, if scales_by_norms
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> slot_names() const = 0;  // "momentum"
  // Whether a gradient of zeros changes nothing, slots included, so that Update may get the named
  // rows of a table alone.  Averages do not count: they take all rows.
  virtual bool leaves_untouched(double /*decay_multiplier*/) const { return false; }
  // Sets the scalars for the update of step `step`, from 0, if none before was skipped.
  // On the host, before the step.
  virtual void Prepare(uint64_t /*step*/, UpdateScalars&) const {}
  // Whether a parameter's change depends on norms of the whole of it.  Then Measure comes before
  // Update, and all pieces of all parameters before the first Update of any part of them.
  virtual bool scales_by_norms() const { return false; }
  // Sets the squares of the pieces that the views have, and moments unless update->skip.  Enqueues
  // on `stream`, as Update.  Precondition: all have one dtype, and none has rows.
  virtual absl::Status Measure(Stream&, const UpdateScalars*,
                               std::span<const ParameterViews>) const {
    return absl::InternalError("this optimizer measures nothing");
  }
  // Unless update->skip, value <- value - change(gradient * update->gradient_scale + decay * value)
  // for each parameter, in AccumulateDType, and on the master if there is one.  Enqueues on
  // `stream`.  Every tensor, and `update` in device memory, must outlive that.
  // Precondition: all have one dtype, and if one has rows, all are of its table.  Errors:
  // ForEachPart's.
  virtual absl::Status Update(Stream& stream, const UpdateScalars* update,
                              std::span<const ParameterViews> parameters) const = 0;
};

// For the log of norms: of each view the pieces' sums of squares of gradient *
// update->gradient_scale, in double, if update->logs_norms, else zeros.  Enqueues on `stream`, as
// Optimizer::Update.
absl::Status MeasureGradients(Stream& stream, const UpdateScalars* update,
                              std::span<const ParameterViews> parameters);

// SGD with (Nesterov) momentum.  Source: Sutskever et al. 2013.
//   m <- momentum * m + g;  v <- v - lr * (nesterov ? g + momentum * m : m)
// Slots: "momentum", or none if momentum is 0.
std::unique_ptr<Optimizer> NewSgd(const OptimizerConfig::Sgd& config, double weight_decay);

// Adam.  Source: Kingma & Ba 2015, arXiv:1412.6980, Algorithm 1.  Weight decay is added to the
// gradient (L2), and so is part of the moments.  Slots: "first_moment", "second_moment".
std::unique_ptr<Optimizer> NewAdam(const OptimizerConfig::Adam& config, double weight_decay);

// AdamW, which is Adam without decay, and v <- v - lr * decay * v beside it.  Slots: Adam's.  The
// schedule is in the learning rate.  Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
std::unique_ptr<Optimizer> NewAdamW(const OptimizerConfig::Adam& config, double weight_decay);

// LARS.  w and g are norms of the whole parameter and its gradient; g_i has no decay in it.
//   r <- coefficient * w / (g + decay * w), or 1 if w or g is 0, or the parameter does not decay
//   m <- momentum * m + lr * r * (g_i + decay * v);  v <- v - m
// Slots: "momentum".  Source: You et al. 2017, arXiv:1708.03888, Algorithm 1.
std::unique_ptr<Optimizer> NewLars(const OptimizerConfig::Lars& config, double weight_decay);

// LAMB.  c is Adam's change without decay of the gradient, and with corrections of the bias.
//   c <- c + decay * v;  v <- v - lr * r * c,
// where r is the norm of the parameter over that of c, or 1 if one is 0, or the parameter does not
// decay.  Slots: Adam's.  Source: You et al. 2020, arXiv:1904.00962, Algorithm 2.
std::unique_ptr<Optimizer> NewLamb(const OptimizerConfig::Lamb& config, double weight_decay);

// `inner`, with an average beside each value that it makes.  The first update's is the value.
//   a <- a + (1 - decay) * (v - a)
// Slots: those of `inner`, then kAverageSlot.  The named rows of a table move as by `inner`, and
// all of its averages do.  Source: PyTorch's torch.optim.swa_utils, get_ema_multi_avg_fn.
std::unique_ptr<Optimizer> NewAverage(std::unique_ptr<Optimizer> inner, double decay);

// The optimizer of the kind that is set, and the average if one is.  Precondition: the config
// passed ParseTrainer.
std::unique_ptr<Optimizer> NewOptimizer(const OptimizerConfig& config);

}  // namespace gyre
