#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/training/model/model_plan.h"

namespace gyre {
namespace {

using Player = RunShape::Player;

template <typename... What>
absl::Status Refused(const Player& player, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("player \"", player.name, "\": ", what...));
}

const NetNode* NodeOf(const NetSpec& net, absl::string_view layer) {
  const auto found = std::ranges::find_if(
      net.nodes, [layer](const NetNode& node) { return node.config->name() == layer; });
  return found == net.nodes.end() ? nullptr : &*found;
}

absl::Status CheckModes(const RunShape& shape, const NetSpec& whole) {
  const Player& first = shape.players.front();
  if (shape.server) {
    return Refused(first,
                   "a parameter server's owners update all parameters in each step; train with "
                   "sync allreduce (shard_optimizer shares out the same)");
  }
  if (shape.loss_scale.dynamic()) {
    return Refused(first,
                   "loss_scale.dynamic counts the steps of one player; give loss_scale.fixed");
  }
  if (shape.trainable_from.size() > 1) {
    return Refused(first, "parameters train from step ", shape.trainable_from.back(),
                   " on (trainable_from), or in turns; leave one out");
  }
  if (!whole.carried.empty()) {
    return Refused(first, "rows are carried from step to step, as those of \"",
                   NameOf(whole, whole.carried.front()),
                   "\" are, in nets without players; leave players out");
  }
  return absl::OkStatus();
}

absl::Status CheckPatterns(const Player& player, const NetSpec& whole) {
  for (const std::string& loss : player.losses) {
    const NetNode* const node = NodeOf(whole, loss);
    if (node == nullptr || node->spec.loss_output < 0) {
      return Refused(player, "losses: expected the name of a loss, got \"", loss, "\"",
                     node == nullptr ? ", which is no layer" : ", which is another layer");
    }
  }
  for (const std::string& pattern : player.layers) {
    const bool any = std::ranges::any_of(whole.nodes, [&](const NetNode& node) {
      return node.trained() && Player::Matches(pattern, node.config->name());
    });
    if (!any) return Refused(player, "layers: \"", pattern, "\" is no layer that trains");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlayers(const Parsed<NetConfig>& net, const NetSpec& whole,
                          std::span<const TrainingNets> turns) {
  const RunShape& shape = whole.shape;
  if (shape.players.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckModes(shape, whole));
  for (const Player& player : shape.players) RETURN_IF_ERROR(CheckPatterns(player, whole));
  std::map<int, const NetNode*> first_of;  // by parameter: a layer that trains it
  for (const NetNode& node : whole.nodes) {
    if (!node.trained()) continue;
    const std::string& layer = node.config->name();
    const auto refused = [&](const auto&... what) {
      return AtLayer(net, *node.config, absl::InvalidArgumentError(absl::StrCat(what...)));
    };
    const int own = shape.PlayerOf(layer);
    if (own < 0) return refused("trains, and no player has it; name it in a player's layers");
    const Player& player = shape.players[own];
    for (const Player& other : shape.players) {
      if (!other.trains(layer) || &other == &player) continue;
      return refused("is of players \"", player.name, "\" and \"", other.name,
                     "\"; a layer trains in the turn of one");
    }
    if (static_cast<size_t>(own) < turns.size() &&
        NodeOf(turns[own].train->spec, layer) == nullptr) {
      return refused("is of player \"", player.name, "\", and none of its losses depends on it");
    }
    for (const int parameter : node.parameters) {
      if (parameter < 0) continue;
      const auto [found, is_new] = first_of.emplace(parameter, &node);
      if (is_new || shape.PlayerOf(found->second->config->name()) == own) continue;
      return refused("shares a parameter with layer \"", found->second->config->name(),
                     "\", which is of another player");
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre
