// lint.h: warnings about valid texts that are most likely mistakes.  A run and `train --plan` print
// them.  A pure function of the texts and their plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/training/feed/data_check.h"
#include "engine/training/model/model_plan.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// A line such as "net.textproto:7:1: layer "conv1": ..." for each suspicion.
// Precondition: `plan` is of this trainer and net, and has a training net.
std::vector<std::string> Lint(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                              const ModelPlan& plan);

// The same about the samples of data.train: a line for each of look.large, which names the setting
// that mends it, and one for more outputs than `classes`, if these have names.
std::vector<std::string> LintData(const Parsed<TrainerConfig>& trainer, const DataLook& look,
                                  std::span<const std::string> classes);

}  // namespace gyre
