#include "engine/training/run_shape.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "distributed/collectives/algorithms/direct_ranges.h"
#include "distributed/server_shards.h"
#include "engine/runtime/check.h"
#include "models/schema/net.pb.h"
#include "models/schema/trainer.pb.h"

namespace gyre {
namespace {

int64_t NearestEnd(const std::vector<ElementRange>& pieces, int64_t at) {
  int64_t nearest = 0;
  for (const ElementRange& piece : pieces) {
    if (std::abs(piece.end - at) < std::abs(nearest - at)) nearest = piece.end;
  }
  return nearest;
}

LossScale LossScaleOf(const LossScaleConfig& config) {
  if (config.has_fixed()) return {.initial = config.fixed()};
  if (!config.has_dynamic()) return {};
  return {config.dynamic().initial(), config.dynamic().growth_interval()};
}

DType TypeNamed(DistributedConfig::Wire wire) {
  if (wire == DistributedConfig::F16) return DType::kF16;
  return wire == DistributedConfig::BF16 ? DType::kBF16 : DType::kF32;
}

std::optional<RunShape::Server> ServerOf(const DistributedConfig& config, int ranks) {
  if (ranks == 1 || config.sync() == DistributedConfig::ALLREDUCE) return std::nullopt;
  const Sync sync = config.sync() == DistributedConfig::BSP   ? Sync::kBsp
                    : config.sync() == DistributedConfig::SSP ? Sync::kSsp
                                                              : Sync::kAsync;
  return RunShape::Server{.sync = sync,
                          .staleness = static_cast<int>(config.staleness()),
                          .dedicated = static_cast<int>(config.servers()),
                          .in_host_memory = config.server_memory() == DistributedConfig::HOST};
}

std::vector<RunShape::Player> PlayersOf(const TrainerConfig& config) {
  std::vector<RunShape::Player> players;
  for (const PlayerConfig& player : config.players()) {
    players.push_back({.name = player.name(),
                       .layers = {player.layers().begin(), player.layers().end()},
                       .losses = {player.losses().begin(), player.losses().end()},
                       .steps = player.steps()});
  }
  return players;
}

}  // namespace

int RunShape::GroupOf(int64_t from) const {
  const auto found = std::ranges::lower_bound(trainable_from, from);
  GYRE_CHECK(found != trainable_from.end() && *found == from);
  return static_cast<int>(found - trainable_from.begin());
}

RunShape::PlayerTurn RunShape::TurnAt(int64_t step) const {
  if (players.empty()) return {.player = 0, .step = step};
  int64_t of_round = 0;
  for (const Player& player : players) of_round += player.steps;
  PlayerTurn turn = {.player = 0, .step = step % of_round};
  while (turn.step >= players[turn.player].steps) turn.step -= players[turn.player++].steps;
  turn.step += step / of_round * players[turn.player].steps;
  return turn;
}

bool RunShape::Player::Matches(absl::string_view pattern, absl::string_view layer) {
  return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(layer, pattern) : layer == pattern;
}

bool RunShape::Player::trains(absl::string_view layer) const {
  return std::ranges::any_of(
      layers, [layer](absl::string_view pattern) { return Matches(pattern, layer); });
}

int RunShape::PlayerOf(absl::string_view layer) const {
  const auto found =
      std::ranges::find_if(players, [layer](const Player& player) { return player.trains(layer); });
  return found == players.end() ? -1 : static_cast<int>(found - players.begin());
}

std::vector<ElementRange> RunShape::ShardsOf(int64_t elements, DType dtype) const {
  if (!shard_optimizer) return std::vector<ElementRange>(ranks, {0, elements});
  std::vector<ElementRange> parts;
  for (int of_rank = 0; of_rank < ranks; ++of_rank) {
    parts.push_back(ServerShard(elements, workers(), ranks - workers(), of_rank));
  }
  if (workers() == ranks || !gated() || server->sync != Sync::kBsp) return parts;
  const std::vector<ElementRange> pieces = MeasuredRanges(elements, dtype);
  for (ElementRange& part : parts) {
    part = {NearestEnd(pieces, part.begin), NearestEnd(pieces, part.end)};
  }
  return parts;
}

std::vector<ElementRange> RunShape::MeasuredRanges(int64_t elements, DType dtype) const {
  if (workers() == 1) return {{0, elements}};
  return DirectRanges(elements, SizeOf(WireType(dtype)), workers());
}

DType PrecisionOf(const TrainerConfig& config, const NetConfig& net) {
  return DTypeOf(config.has_precision() ? config.precision() : net.precision());
}

DType WireOf(const TrainerConfig& config) { return TypeNamed(config.distributed().wire()); }

RunShape ShapeOf(const TrainerConfig& config, const NetConfig& net, int rank, int ranks) {
  const std::optional<RunShape::Server> server = ServerOf(config.distributed(), ranks);
  return {.global = config.batch(),
          .rank = rank,
          .ranks = ranks,
          .accumulate = config.accumulate(),
          .compute = PrecisionOf(config, net),
          .page_activations = TypeNamed(config.page_activations()),
          .seed = config.seed(),
          .shard_optimizer = server || (ranks > 1 && config.distributed().shard_optimizer()),
          .server = server,
          .wire = server ? WireOf(config) : DType::kF32,
          .loss_scale = LossScaleOf(config.loss_scale()),
          .clip_norm = config.optimizer().has_clip_norm()
                           ? std::optional(config.optimizer().clip_norm())
                           : std::nullopt,
          .scales_by_norms = config.optimizer().has_lars() || config.optimizer().has_lamb(),
          .log_norms_every = config.log_norms_every(),
          .players = PlayersOf(config)};
}

}  // namespace gyre
