#include "engine/training/optimizers/optimizer.h"

namespace gyre {

std::unique_ptr<Optimizer> NewOptimizer(const OptimizerConfig& config) {
  switch (config.kind_case()) {
    case OptimizerConfig::kSgd:
      return NewSgd(config.sgd(), config.weight_decay());
    case OptimizerConfig::kAdam:
      return NewAdam(config.adam(), config.weight_decay());
    case OptimizerConfig::kAdamw:
      return NewAdamW(config.adamw(), config.weight_decay());
    case OptimizerConfig::KIND_NOT_SET:
      break;
  }
  CheckFailed(__FILE__, __LINE__, "an optimizer's config has a kind");
}

}  // namespace gyre
