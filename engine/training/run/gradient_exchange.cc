#include "engine/training/run/gradient_exchange.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/collectives/choice/selector.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/check.h"
#include "engine/training/run_shape.h"

namespace gyre {
namespace {

constexpr int64_t kMostSteps = std::numeric_limits<int>::max();  // of staleness, which is an int

absl::Status CheckSync(const DistributedConfig& config, const SourceMap& source) {
  const auto error = [&](const char* field, const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(source.Where(config, field), ": ", what...));
  };
  const std::string sync = absl::AsciiStrToLower(DistributedConfig::Sync_Name(config.sync()));
  const bool bounded = config.sync() == DistributedConfig::SSP;
  if (config.staleness() < 0 || config.staleness() > kMostSteps) {
    return error("staleness", "expected ",
                 config.staleness() < 0 ? "0 steps or more" : "at most 2^31 - 1 steps", ", got ",
                 config.staleness());
  }
  if (config.staleness() > 0 && !bounded) {
    return error("staleness", "bounds sync ssp alone, and sync is ", sync, "; leave one out");
  }
  if (config.servers() < 0)
    return error("servers", "expected 0 ranks or more, got ", config.servers());
  if (config.sync() == DistributedConfig::ALLREDUCE) {
    if (config.servers() == 0 && !config.has_server_memory()) return absl::OkStatus();
    const char* const field = config.servers() > 0 ? "servers" : "server_memory";
    return error(field,
                 "is of a parameter server, and sync is allreduce; make sync bsp, ssp or "
                 "async, or leave ",
                 field, " out");
  }
  constexpr std::string_view kBesideServers[] = {"direct", "shared", "auto"};
  if (config.has_allreduce() && std::ranges::count(kBesideServers, config.allreduce()) == 0) {
    return error("allreduce", "sums no gradients, because sync is ", sync,
                 "; leave it out, or make it direct, shared or auto, by which a parameter "
                 "server's ranks sum metrics and statistics");
  }
  if (config.shard_optimizer()) {
    return error("shard_optimizer",
                 "is of sync allreduce; owners of a parameter server have the "
                 "optimizer's state of their part in any case; leave one out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AllreduceChoice> CompleteExchange(const NetConfig& net,
                                                 std::optional<DeviceKind> device, bool threads,
                                                 Parsed<TrainerConfig>& trainer) {
  TrainerConfig& config = *trainer.message;
  const SourceMap& source = *trainer.source;
  const DistributedConfig::Sync sync = config.distributed().sync();
  const bool sums = sync == DistributedConfig::ALLREDUCE;
  AllreduceChoice choice;
  // Who leaves the choice open has the one that can do what else is wanted.
  if (sums && config.distributed().wire() != DistributedConfig::F32 &&
      (!config.distributed().has_allreduce() || config.distributed().allreduce() == "auto")) {
    config.mutable_distributed()->set_allreduce("direct");
  }
  // Before the ranks meet, because one without an algorithm cannot join the others.
  RETURN_IF_ERROR(Annotate(CheckAllreduce(config.distributed().allreduce(), device, threads),
                           source.Where(config.distributed(), "allreduce")));
  RETURN_IF_ERROR(CheckSync(config.distributed(), source));
  // An owner adds gradients in the order of ranks, so what else a step sums is added likewise.
  if (sync == DistributedConfig::BSP && config.distributed().allreduce() != "shared") {
    config.mutable_distributed()->set_allreduce("direct");
  }
  choice.algorithm = config.distributed().allreduce();
  // It sums metrics alone there, and sizes the server's buckets, which a resumed run must keep.
  if (!config.distributed().has_allreduce() &&
      (sync == DistributedConfig::SSP || sync == DistributedConfig::ASYNC)) {
    choice.algorithm = "ring";
  }
  const DType sent_as = WireOf(config);
  absl::Status wire;
  if (sums) {  // else of what is no sum
    choice.wire = sent_as;
    wire = CheckWire(config.distributed().allreduce(), sent_as);
  }
  const DType precision = PrecisionOf(config, net);
  if (sent_as != DType::kF32 && precision != DType::kF32) {
    wire = absl::InvalidArgumentError(absl::StrCat("carries gradients of F32, and precision is ",
                                                   std::string(DTypeName(precision)),
                                                   "; leave one out"));
  }
  RETURN_IF_ERROR(Annotate(wire, source.Where(config.distributed(), "wire")));
  if (config.distributed().shard_optimizer()) {
    absl::Status halves = CheckHalves(config.distributed().allreduce());
    if (choice.wire != DType::kF32) {
      halves = absl::InvalidArgumentError(
          "sums gradients as they are, and distributed.wire rounds them; leave one out");
    }
    RETURN_IF_ERROR(Annotate(halves, source.Where(config.distributed(), "shard_optimizer")));
  }
  if (config.distributed().has_calibration()) {
    const std::string path = RelativeTo(source.file(), config.distributed().calibration());
    const auto text = ReadText(path);
    absl::Status status = text.status();
    if (status.ok()) {
      choice.calibration = *text;
      status = Annotate(Selector::Calibrated(*text, {}).status(), path);
    }
    RETURN_IF_ERROR(Annotate(status, source.Where(config.distributed(), "calibration")));
  }
  return choice;
}

}  // namespace gyre
