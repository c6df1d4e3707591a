#include "tools/command_line/run_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/collectives/choice/selector.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {
namespace {

constexpr int64_t kMostSteps = std::numeric_limits<int>::max();  // of staleness, which is an int

// An error of opening a file says who named it; one within the file names its line instead.
absl::Status AboutFile(const absl::Status& status, const std::string& path,
                       const std::string& named_by) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return status;
  return Annotate(status, named_by);
}

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
  for (const char* const field : {"servers", "server_memory"}) {
    const bool given =
        absl::string_view(field) == "servers" ? config.servers() > 0 : config.has_server_memory();
    if (!given || config.sync() != DistributedConfig::ALLREDUCE) continue;
    return error(field,
                 "is of a parameter server, and sync is allreduce; make sync bsp, ssp or "
                 "async, or leave ",
                 field, " out");
  }
  if (config.sync() == DistributedConfig::ALLREDUCE) return absl::OkStatus();
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

// Completes `files` by what its texts leave open, and checks how ranks exchange gradients.
absl::StatusOr<ConfigFiles> Checked(ConfigFiles files, const std::string& device, int ranks) {
  TrainerConfig& config = *files.trainer.message;
  const SourceMap& source = *files.trainer.source;
  // Who leaves the choice open has the one that can do what else is wanted.
  if (config.distributed().wire() != DistributedConfig::F32 &&
      config.distributed().sync() == DistributedConfig::ALLREDUCE &&
      (!config.distributed().has_allreduce() || config.distributed().allreduce() == "auto")) {
    config.mutable_distributed()->set_allreduce("direct");
  }
  // Before the ranks meet, because one without an algorithm cannot join the others.
  const auto kind = ParseDeviceKind(device);  // OpenDevice refuses another
  RETURN_IF_ERROR(Annotate(CheckAllreduce(config.distributed().allreduce(),
                                          kind.ok() ? *kind : std::optional<DeviceKind>(),
                                          /*threads=*/ranks > 1),
                           source.Where(config.distributed(), "allreduce")));
  RETURN_IF_ERROR(CheckSync(config.distributed(), source));
  // An owner adds gradients in the order of ranks, so what else a step sums is added likewise.
  if (config.distributed().sync() == DistributedConfig::BSP &&
      config.distributed().allreduce() != "shared") {
    config.mutable_distributed()->set_allreduce("direct");
  }
  files.allreduce.algorithm = config.distributed().allreduce();
  // It sums metrics alone there, and sizes the server's buckets, which a resumed run must keep.
  if (!config.distributed().has_allreduce() &&
      (config.distributed().sync() == DistributedConfig::SSP ||
       config.distributed().sync() == DistributedConfig::ASYNC)) {
    files.allreduce.algorithm = "ring";
  }
  const DType sent_as = WireOf(config);
  absl::Status wire;
  if (config.distributed().sync() == DistributedConfig::ALLREDUCE) {  // else of what is no sum
    files.allreduce.wire = sent_as;
    wire = CheckWire(config.distributed().allreduce(), sent_as);
  }
  const DType precision = PrecisionOf(config, *files.net.message);
  if (sent_as != DType::kF32 && precision != DType::kF32) {
    wire = absl::InvalidArgumentError(absl::StrCat("carries gradients of F32, and precision is ",
                                                   std::string(DTypeName(precision)),
                                                   "; leave one out"));
  }
  RETURN_IF_ERROR(Annotate(wire, source.Where(config.distributed(), "wire")));
  if (config.distributed().shard_optimizer()) {
    absl::Status halves = CheckHalves(config.distributed().allreduce());
    if (files.allreduce.wire != DType::kF32) {
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
      files.allreduce.calibration = *text;
      status = Annotate(Selector::Calibrated(*text, {}).status(), path);
    }
    RETURN_IF_ERROR(Annotate(status, source.Where(config.distributed(), "calibration")));
  }
  return files;
}

}  // namespace

absl::StatusOr<Weights> ReadTrained(const std::string& where) {
  ASSIGN_OR_RETURN(Weights weights, ReadWeights(where));
  for (const std::string& warning : weights.warnings) {
    std::fprintf(stderr, "%s\n", Wrapped("warning: ", warning).c_str());
  }
  return weights;
}

absl::StatusOr<ConfigFiles> ReadFiles(const std::string& trainer_path,
                                      const std::vector<std::string>& overrides,
                                      const std::string& device, const Spellings& spellings,
                                      int ranks) {
  if (trainer_path.empty()) {
    return absl::InvalidArgumentError("--trainer is missing; see --help");
  }
  const SplitOverrides split = Split(overrides);
  ConfigFiles files;
  auto trainer = ParseTrainer(trainer_path, split.trainer, spellings);
  if (!trainer.ok()) return AboutFile(trainer.status(), trainer_path, "--trainer");
  files.trainer = *std::move(trainer);
  const TrainerConfig& config = *files.trainer.message;
  const std::string net_path = RelativeTo(trainer_path, config.net());
  auto net = ParseNet(net_path, split.net, spellings);
  if (!net.ok()) {
    return AboutFile(net.status(), net_path, files.trainer.source->Where(config, "net") + ": net");
  }
  files.net = *std::move(net);
  return Checked(std::move(files), device, ranks);
}

absl::StatusOr<ConfigFiles> FilesOfRun(const RunTexts& texts, const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const Spellings& spellings, int ranks) {
  if (texts.net.empty() || texts.trainer.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no texts of a net and its trainer; give --trainer"));
  }
  const SplitOverrides split = Split(overrides);
  ConfigFiles files;
  // Paths count from the folder of the trainer's file, but the lines are those of the saved text.
  const std::string saved = (std::filesystem::path(path) / "").parent_path().filename().string();
  const std::string trainer = texts.trainer_file.empty()
                                  ? path
                                  : absl::StrCat(texts.trainer_file, " (as saved in ", saved, ")");
  ASSIGN_OR_RETURN(files.trainer,
                   ParseTrainerText(texts.trainer, trainer, split.trainer, spellings));
  ASSIGN_OR_RETURN(files.net, ParseNetText(texts.net, path, split.net, spellings));
  return Checked(std::move(files), /*device=*/"", ranks);
}

}  // namespace gyre
