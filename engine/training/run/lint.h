// lint.h: what a net's and a trainer's text may say and yet is most likely a mistake; `train
// --plan` prints it.  A pure function of the texts and the plan made of them.
#pragma once

#include <string>
#include <vector>

#include "engine/training/model/model.h"

namespace gyre {

// "net.textproto:7:1: layer "conv1": ...", one for each suspicion.
// plan: of this trainer and net, with a training net.
std::vector<std::string> Lint(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                              const ModelPlan& plan);

}  // namespace gyre
