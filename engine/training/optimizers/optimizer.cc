#include "engine/training/optimizers/optimizer.h"

#include <utility>

namespace gyre {

namespace {

std::unique_ptr<Optimizer> OfKind(const OptimizerConfig& config) {
  switch (config.kind_case()) {
    case OptimizerConfig::kSgd:
      return NewSgd(config.sgd(), config.weight_decay());
    case OptimizerConfig::kAdam:
      return NewAdam(config.adam(), config.weight_decay());
    case OptimizerConfig::kAdamw:
      return NewAdamW(config.adamw(), config.weight_decay());
    case OptimizerConfig::kLars:
      return NewLars(config.lars(), config.weight_decay());
    case OptimizerConfig::kLamb:
      return NewLamb(config.lamb(), config.weight_decay());
    case OptimizerConfig::KIND_NOT_SET:
      break;
  }
  CheckFailed(__FILE__, __LINE__, "an optimizer's config has a kind");
}

}  // namespace

std::unique_ptr<Optimizer> NewOptimizer(const OptimizerConfig& config) {
  std::unique_ptr<Optimizer> of_kind = OfKind(config);
  if (!config.has_ema()) return of_kind;
  return NewAverage(std::move(of_kind), config.ema().decay());
}

}  // namespace gyre
