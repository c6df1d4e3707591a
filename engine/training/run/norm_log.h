// norm_log.h: what log_norms_every writes: norms of each trained parameter, of its gradient, and of
// what a step changed of it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/training/metrics/metrics_log.h"
#include "engine/training/model/model.h"

namespace gyre {

class NormLog {
 public:
  // Remembers all trained values before a step, on rank 0.  All ranks call both, at the same steps,
  // when they have all values (TrainingStep::Settle).  Errors: those of Model::EachValue.
  absl::Status Remember(const Model& model, Stream& stream);
  // After the step: the norms, by name, or none but on rank 0.  `squares` are of gradients, by
  // piece (ParameterPieces), or empty where no rank knows them.
  // `net` is the one that ran.
  absl::StatusOr<std::vector<LoggedNorms>> Tell(const Model& model, const NetPlan& net,
                                                Stream& stream, std::span<const double> squares);

 private:
  std::map<std::string, std::vector<std::vector<std::byte>>> before_;  // of slices, in order
};

}  // namespace gyre
