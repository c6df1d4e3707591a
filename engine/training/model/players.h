// players.h: whether nets can train in turn (RunShape::players).  Pure.
#pragma once

#include <span>

#include "engine/training/model/model_plan.h"

namespace gyre {

// `whole` is of all layers, and `turns` of the players', in order.
// Errors: InvalidArgument, naming player or layer, for
//   a loss that is none, or a pattern of layers that no trained layer has
//   a trained layer of no player or of two, or on which none of its player's losses depends
//   a parameter that layers of two players share
//   a parameter server, a dynamic loss scale, trainable_from, or carried rows
absl::Status CheckPlayers(const Parsed<NetConfig>& net, const NetSpec& whole,
                          std::span<const TrainingNets> turns);

}  // namespace gyre
