#include "tools/command_line/run_files.h"

#include <cstdio>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/model/weights_match.h"
#include "engine/training/predict/trained_net.h"
#include "engine/training/run/gradient_exchange.h"

namespace gyre {
namespace {

// An error of opening a file says who named it; one within the file names its line instead.
absl::Status AboutFile(const absl::Status& status, const std::string& path,
                       const std::string& named_by) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return status;
  return Annotate(status, named_by);
}

// Checks how ranks exchange gradients.
absl::StatusOr<ConfigFiles> Checked(ConfigFiles files, const std::string& device, int ranks) {
  const auto kind = ParseDeviceKind(device);  // OpenDevice refuses another
  ASSIGN_OR_RETURN(
      files.allreduce,
      CompleteExchange(*files.net.message, kind.ok() ? *kind : std::optional<DeviceKind>(),
                       /*threads=*/ranks > 1, files.trainer));
  return files;
}

}  // namespace

absl::StatusOr<Weights> ReadTrained(const std::string& where, const std::string& named_by,
                                    bool last_weights) {
  ASSIGN_OR_RETURN(
      Weights weights,
      ReadWeights(where, named_by, last_weights ? WeightsKind::kLast : WeightsKind::kAverages));
  for (const std::string& warning : weights.warnings) {
    PrintNote("warning: ", warning);
  }
  if (weights.averages && AnnouncedRank().rank == 0) {
    PrintNote("", absl::StrCat("weights: the averages (ema) of ", weights.path,
                               "; --last_weights takes the last ones"));
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
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has no texts of a net and its trainer; give --trainer, and this as --weights"));
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

absl::StatusOr<TrainedFiles> ReadTrainedFiles(const TrainedFrom& from,
                                              const std::vector<std::string>& overrides,
                                              const Spellings& spellings, int ranks) {
  if (!from.run.empty() && !(from.trainer.empty() && from.weights.empty())) {
    return absl::InvalidArgumentError(
        "--run has the texts and the weights; leave out --trainer and --weights, or --run");
  }
  if (from.run.empty() && from.trainer.empty()) {
    return absl::InvalidArgumentError("--run is missing, or --trainer and --weights; see --help");
  }
  TrainedFiles trained;
  if (from.run.empty()) {
    ASSIGN_OR_RETURN(trained.files,
                     ReadFiles(from.trainer, overrides, /*device=*/"", spellings, ranks));
    ASSIGN_OR_RETURN(trained.weights, ReadTrained(from.weights, "--weights", from.last_weights));
  } else {
    ASSIGN_OR_RETURN(trained.weights, ReadTrained(from.run, "--run", from.last_weights));
    const Weights& weights = trained.weights;
    ASSIGN_OR_RETURN(trained.files,
                     FilesOfRun(weights.texts, weights.path, overrides, spellings, ranks));
  }
  if (from.weights_map.empty()) return trained;
  auto renamed = RenameToNet(trained.files.net, *trained.files.trainer.message,
                             trained.weights.tensors, from.weights_map);
  if (!renamed.ok()) return AnnotateUnlessFlag(renamed.status(), trained.weights.path);
  trained.weights.tensors = *std::move(renamed);
  return trained;
}

}  // namespace gyre
