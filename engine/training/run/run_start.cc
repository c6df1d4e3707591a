#include "engine/training/run/run_start.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/count_text.h"
#include "engine/training/checkpoint/checkpoint_gather.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/model.h"
#include "engine/training/model/weights.h"
#include "engine/training/trainable_from.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// `starts`: a new run, which may have other classes.
absl::Status CheckFit(const TrainingOptions& options, const Fit& of_weights, bool starts) {
  if (!options.fit) return absl::OkStatus();  // the data are assumed
  for (const auto& [name, text] : of_weights) {
    if (name == kNormalizationFile && !options.fit->contains(name)) continue;  // the trainer's own
    if (name == kClassesFile && starts) continue;
    const std::string difference = DifferenceOf({{name, text}}, *options.fit);
    if (difference.empty()) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "was made with another %s: %s; name that of its run in data.train", name, difference));
  }
  return absl::OkStatus();
}

absl::Status FindWeights(const TrainingOptions& options, const ModelPlan& plan, RunStart& start) {
  ASSIGN_OR_RETURN(const Weights weights, ReadWeights(options.weights));
  start.path = weights.path;
  start.averages = weights.averages;
  start.warnings = weights.warnings;
  RETURN_IF_ERROR(Annotate(CheckFit(options, weights.fit, /*starts=*/true), weights.path));
  const auto classes = weights.fit.find(kClassesFile);
  if (classes != weights.fit.end() && options.fit && options.fit->contains(kClassesFile)) {
    const std::string difference = DifferenceOf({*classes}, *options.fit);
    if (!difference.empty()) {
      start.warnings.push_back(absl::StrFormat(
          "%s: has other classes: %s; leave out the layer that tells them apart, by "
          "--weights_map=LAYER=",
          weights.path, difference));
    }
  }
  if (weights.fit.contains(kNormalizationFile) && options.fit &&
      !options.fit->contains(kNormalizationFile)) {
    start.warnings.push_back(absl::StrCat(weights.path, ": ", kOtherNormalization));
  }
  auto match =
      MatchWeights(weights.tensors, options.weights_map, plan.parameters, options.weights_partial);
  if (!match.ok()) return AnnotateUnlessFlag(match.status(), weights.path);
  start.weights = *std::move(match);
  return Annotate(CheckFiniteTensors(start.weights->tensors.tensors()), weights.path);
}

absl::StatusOr<Checkpoint> FindCheckpoint(const TrainingOptions& options,
                                          ProcessGroup& communication, bool keeps,
                                          RunStart& start) {
  const bool latest = TakesNewest(options);
  const CheckpointStore store(absl::StrCat(options.out, "/checkpoints"));
  fs::path given = options.resume;
  if (!given.has_filename()) given = given.parent_path();
  std::optional<GatheredCheckpoint> gathered;
  if (latest) {
    ASSIGN_OR_RETURN(gathered, GatherCheckpoint(communication, store.folder(), ""));
  } else if (given.has_filename()) {
    const fs::path root = given.has_parent_path() ? given.parent_path() : ".";
    ASSIGN_OR_RETURN(gathered, GatherCheckpoint(communication, root, given.filename()));
  }
  // What comes later is another run's.
  ASSIGN_OR_RETURN(start.newest, store.NewestStep());
  std::vector<std::string> skipped;
  absl::StatusOr<Checkpoint> checkpoint = gathered ? LoadCheckpoint(gathered->path)
                                          : latest ? store.LoadLatest(&skipped)
                                                   : LoadCheckpoint(options.resume);
  if (gathered) skipped = gathered->skipped;
  for (const std::string& line : skipped) start.warnings.push_back(absl::StrCat("skipped ", line));
  if (gathered && gathered->received && !keeps) start.received = gathered->path;
  return checkpoint;
}

// A choice that changes bits, which was another when the checkpoint was made; in words for people.
std::string DescribeChoice(const std::string& name, const std::string& now,
                           const std::string& before) {
  int64_t count = 0;
  if ((name == "threads" || name == "ranks") && absl::SimpleAtoi(now, &count)) {
    const std::string noun(absl::StripSuffix(name, "s"));
    return absl::StrCat(Counted(count, noun), " in place of ", before);
  }
  if (name == "allreduce") return absl::StrCat("allreduce ", now, " in place of ", before);
  // The others are digests.
  if (name == "training data") return "other training data";
  if (name == "layouts") return "other layouts of the weights";
  if (name == "rounded pages")
    return absl::StrCat(now == "none" ? "no" : "other", " pages of 16 bits");
  return absl::StrCat("another choice of ", name);
}

template <typename Config>
void WarnOfChange(const char* what, const std::string& text, const Config& now, RunStart& start) {
  Config before;
  std::string changes;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&changes);
  if (!google::protobuf::TextFormat::ParseFromString(text, &before)) return;
  if (differencer.Compare(before, now)) return;
  start.warnings.push_back(
      absl::StrCat("the ", what, " has changed since the checkpoint: ",
                   absl::StrReplaceAll(absl::StripSuffix(changes, "\n"), {{"\n", "; "}})));
}

void WarnOfChanges(const TrainerConfig& config, const TrainingOptions& options,
                   const CheckpointState& state, RunStart& start) {
  WarnOfChange("trainer", state.trainer(), config, start);
  NetConfig net;
  if (state.net() != options.net_text &&
      google::protobuf::TextFormat::ParseFromString(options.net_text, &net)) {
    WarnOfChange("net", state.net(), net, start);
  }
  std::vector<std::string> others;
  for (const auto& [name, value] : state.choices()) {
    const auto now = options.choices.find(name);
    const bool same = now == options.choices.end() || now->second == value;
    if (!same) others.push_back(DescribeChoice(name, now->second, value));
  }
  if (others.empty()) return;
  std::ranges::sort(others);  // the file has them in no order
  start.warnings.push_back(
      absl::StrCat("resumed with ", absl::StrJoin(others, ", "),
                   ": the run goes on, but not with the bits that it would have had"));
}

// Whether the steps before `step` are those of either net.
bool IsNetBefore(int64_t step, const std::string& text, const std::string& other_text) {
  if (text == other_text) return true;
  NetConfig net, other;
  return google::protobuf::TextFormat::ParseFromString(text, &net) &&
         google::protobuf::TextFormat::ParseFromString(other_text, &other) &&
         EqualBefore(step, net, other);
}

// Whether the run can go on from the checkpoint.
absl::Status CheckCheckpoint(const TrainerConfig& config, const TrainingOptions& options,
                             const ModelPlan& plan, const Checkpoint& checkpoint) {
  const CheckpointState& state = checkpoint.state;
  if (state.seed() != config.seed()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("was made with seed %d, not %d; pass --seed=%d", state.seed(),
                        config.seed(), state.seed()));
  }
  RETURN_IF_ERROR(CheckLoad(plan, checkpoint.weights, &checkpoint.optimizer, state.step()));
  if (!IsNetBefore(state.step(), state.net(), options.net_text)) {
    return absl::InvalidArgumentError(
        "was made with another net (its layers' settings differ); to start a new run from its "
        "weights, give it to --weights");
  }
  RETURN_IF_ERROR(CheckFit(options, FitOf(state), /*starts=*/false));
  return CheckCarried(plan, checkpoint.carried);
}

// Starts from start.checkpoint, if the run can.
absl::Status TakeCheckpoint(const TrainerConfig& config, const TrainingOptions& options,
                            const ModelPlan& plan, RunStart& start) {
  start.path = start.checkpoint->path;
  start.resumed = true;
  start.step = start.checkpoint->state.step();
  start.position = start.checkpoint->state.position();
  return Annotate(CheckCheckpoint(config, options, plan, *start.checkpoint), start.path);
}

}  // namespace

absl::Status KeepAllreduce(const TrainerConfig& config, const TrainingOptions& options,
                           DeviceKind device, ProcessGroup& communication) {
  if (options.resume.empty()) return absl::OkStatus();  // so on all ranks, by their command
  const DistributedConfig& distributed = config.distributed();
  const bool open =
      !distributed.has_allreduce() && distributed.sync() == DistributedConfig::ALLREDUCE;
  std::optional<CheckpointState> state;  // why there is none, FindStart says
  if (open && TakesNewest(options)) {
    state = NewestStateOf(options.out + "/checkpoints");
  } else if (open) {
    if (auto given = StateOf(options.resume); given.ok()) state = *std::move(given);
  }
  std::string algorithm;
  if (state && state->choices().contains("allreduce")) algorithm = state->choices().at("allreduce");
  algorithm.resize(std::min(algorithm.find_first_of(",:"), algorithm.size()));  // without details
  const std::span<const std::string_view> names = AllreduceNames();
  // By rank: its checkpoint's step and algorithm, both from 1 on, and whether it looks for none.
  std::vector<double> told(3 * static_cast<size_t>(communication.size()));
  const std::span<double> mine =
      std::span(told).subspan(3 * static_cast<size_t>(communication.rank()), 3);
  const auto at = std::ranges::find(names, algorithm);
  mine[0] = state ? static_cast<double>(state->step() + 1) : 0;
  mine[1] = at == names.end() ? 0 : static_cast<double>(at - names.begin() + 1);
  mine[2] = open ? 0 : 1;
  RETURN_IF_ERROR(communication.Sum("the allreduce of the checkpoint to resume from", told));
  size_t newest = 0;
  for (size_t rank = 0; rank < told.size(); rank += 3) {
    if (told[rank + 2] != 0) return absl::OkStatus();  // Agree says which ranks differ
    if (told[rank] > told[newest]) newest = rank;
  }
  if (told[newest + 1] == 0) return absl::OkStatus();
  const std::string_view kept = names[static_cast<size_t>(told[newest + 1]) - 1];
  const bool fits = CheckAllreduce(kept, device).ok() && communication.CanUse(kept) &&
                    (!distributed.shard_optimizer() || PropertiesOf(kept).has_halves);
  if (!fits || kept == communication.algorithm()) return absl::OkStatus();
  return communication.UseAllreduce(std::string(kept));
}

absl::StatusOr<Fit> NormalizationOfStart(const TrainerConfig& config,
                                         const TrainingOptions& options,
                                         ProcessGroup& communication) {
  // So on all ranks, by their command.
  if (options.resume.empty() && options.weights.empty()) return Fit();
  std::string text;
  if (communication.rank() == 0 && HasAuto(config.data())) {
    // The weights count where there is no run to resume.
    Fit fit;
    if (!options.resume.empty()) fit = ReadFit(TakesNewest(options) ? options.out : options.resume);
    if (fit.empty() && !options.weights.empty()) fit = ReadFit(options.weights);
    text = fit[kNormalizationFile];
  }
  ASSIGN_OR_RETURN(text, communication.TextOfLeader("the normalization of the start", text));
  return text.empty() ? Fit() : Fit{{kNormalizationFile, text}};
}

absl::StatusOr<RunStart> FindSaved(const TrainerConfig& config, const TrainingOptions& options,
                                   const ModelPlan& plan, int64_t step, ProcessGroup& communication,
                                   bool keeps) {
  TrainingOptions saved = options;
  saved.resume = CheckpointStore(options.out + "/checkpoints").PathOf(step);
  RunStart start;
  ASSIGN_OR_RETURN(start.checkpoint, FindCheckpoint(saved, communication, keeps, start));
  RETURN_IF_ERROR(TakeCheckpoint(config, saved, plan, start));
  return start;
}

absl::StatusOr<RunStart> FindStart(const TrainerConfig& config, const TrainingOptions& options,
                                   const PlanOfStep& plan_of, ProcessGroup& communication,
                                   bool keeps) {
  const bool may_begin = options.resume.empty() || options.resume == "auto";
  if (!may_begin && !options.weights.empty()) {
    return absl::InvalidArgumentError(
        "--weights starts a new run and --resume goes on with one that has weights; give one");
  }
  if (options.weights.empty() && options.weights_partial) {
    return absl::InvalidArgumentError("--weights_partial is of --weights; give that, too");
  }
  if (options.weights.empty() && !options.weights_map.empty()) {
    return absl::InvalidArgumentError(
        "--weights_map renames the tensors of --weights; give that, too");
  }
  RunStart start;
  if (options.resume.empty()) {
    if (!options.out.empty()) {
      ASSIGN_OR_RETURN(start.newest, CheckpointStore(options.out + "/checkpoints").NewestStep());
    }
  } else {
    absl::StatusOr<Checkpoint> checkpoint = FindCheckpoint(options, communication, keeps, start);
    const bool none = absl::IsNotFound(checkpoint.status());
    if (checkpoint.ok() || none) {
      RETURN_IF_ERROR(communication.CheckEqual("whether there is a checkpoint to resume from",
                                               none ? "there is none" : "there is one"));
    }
    if (checkpoint.ok()) {
      start.checkpoint = *std::move(checkpoint);
    } else if (!may_begin || !none) {
      return absl::Status(
          checkpoint.status().code(),
          absl::StrFormat("--resume=%s: %s; %s", options.resume, checkpoint.status().message(),
                          !TakesNewest(options) ? OtherCheckpoints(options.resume)
                          : none                ? "leave --resume out to start anew, or give "
                                                  "--resume=auto, which does what it can"
                                                : "choose another --out to start anew"));
    }
  }
  if (start.checkpoint) {
    const Checkpoint& from = *start.checkpoint;
    ASSIGN_OR_RETURN(const ModelPlan* const plan, plan_of(from.state.step()));
    RETURN_IF_ERROR(TakeCheckpoint(config, options, *plan, start));
    std::error_code ignored;
    start.continues = fs::equivalent(fs::weakly_canonical(from.path, ignored).parent_path(),
                                     absl::StrCat(options.out, "/checkpoints"), ignored);
    WarnOfChanges(config, options, from.state, start);
    RETURN_IF_ERROR(communication.CheckEqual(
        "the checkpoint to resume from", absl::StrCat(fs::path(from.path).filename().string(), " ",
                                                      start.step, " ", start.position)));
  } else if (!options.weights.empty()) {
    ASSIGN_OR_RETURN(const ModelPlan* const plan, plan_of(0));
    RETURN_IF_ERROR(FindWeights(options, *plan, start));
  }
  // Others' folders are seen to once ranks know whose they are.
  if (communication.rank() == 0) {
    RETURN_IF_ERROR(CheckOut(options, start.newest, start.step));
    if (!options.out.empty()) {
      RETURN_IF_ERROR(CheckpointStore(options.out + "/checkpoints").CheckMakeable());
    }
  }
  return start;
}

absl::Status CheckOut(const TrainingOptions& options, int64_t newest, int64_t step) {
  if (newest >= 0 && options.resume.empty()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s already holds checkpoints; go on with --resume=latest, or choose "
                        "another --out",
                        options.out));
  }
  if (newest > step && !TakesNewest(options)) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s holds a checkpoint of step %d, beyond the one to resume from (%d), which a later "
        "--resume=latest would take; choose another --out, or delete what is newer",
        options.out, newest, step));
  }
  return absl::OkStatus();
}

std::string DescribeStart(const RunStart& start) {
  if (start.resumed) return absl::StrCat("goes on from step ", start.step, " of ", start.path);
  if (!start.weights) return "";
  return absl::StrFormat(
      "starts from %s of %s%s; %d of the net keep their first values, %d of the "
      "file are unused",
      Counted(static_cast<int64_t>(start.weights->tensors.tensors().size()), "tensor"), start.path,
      start.averages ? ", with averages (ema) of its weights" : "", start.weights->initial.size(),
      start.weights->unused.size());
}

}  // namespace gyre
