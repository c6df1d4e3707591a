#include "engine/training/run_state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/atomic_file.h"
#include "engine/training/checkpoint/checkpoint_gather.h"
#include "engine/training/data_feed.h"
#include "engine/training/weights.h"
#include "engine/training/weights_match.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"

namespace gyre {
namespace {

// For which a rank that writes lets the others wait, before it tells that it lives.
constexpr std::chrono::milliseconds kPause(100);
// How often it is seen whether the others' parts are there, and how often yet once a run has
// failed: together less than a failing rank waits before it ends the others.
constexpr std::chrono::milliseconds kBetweenLooks(250);
constexpr int kLooks = 6;

Tensor TensorOf(std::vector<double>& numbers) {
  return {numbers.data(), Shape({static_cast<int64_t>(numbers.size())}), DType::kF64};
}

}  // namespace

void RunState::Advance() {
  ++step_;
  position_ += SamplesAStep(config_);
}

absl::Status RunState::Restore(Model& model, Stream& stream) {
  if (model.plan().options.shape.shard_optimizer) files_of_all_.push_back(kOptimizerFile);
  has_carried_ = !model.train().carried().empty();
  if (has_carried_ && communication_.size() > 1) files_of_all_.push_back(kCarriedFile);
  RETURN_IF_ERROR(SetWeights(model, stream));
  ASSIGN_OR_RETURN(const std::string digest, model.Sha256OfWeights(stream));
  RETURN_IF_ERROR(communication_.CheckEqual("the weights to start from", digest));
  if (received_.empty()) return absl::OkStatus();
  // Nobody here would ever delete it, and a later run might take it for its own.
  RETURN_IF_ERROR(RemoveFolderAtomically(received_));
  std::error_code not_empty;
  std::filesystem::remove(options_.out + "/checkpoints", not_empty);
  std::filesystem::remove(options_.out, not_empty);
  return absl::OkStatus();
}

absl::Status RunState::SetWeights(Model& model, Stream& stream) {
  const bool may_begin = options_.resume.empty() || options_.resume == "auto";
  if (!may_begin && !options_.weights.empty()) {
    return absl::InvalidArgumentError(
        "--weights starts a new run and --resume goes on with one that has weights; give one");
  }
  if (options_.weights.empty() && !options_.weights_map.empty()) {
    return absl::InvalidArgumentError(
        "--weights_map renames the tensors of --weights; give that, too");
  }
  if (!options_.resume.empty()) {
    const absl::StatusOr<Checkpoint> checkpoint = Find();
    const bool none = absl::IsNotFound(checkpoint.status());
    if (checkpoint.ok() || none) {
      RETURN_IF_ERROR(communication_.CheckEqual("whether there is a checkpoint to resume from",
                                                none ? "there is none" : "there is one"));
    }
    if (checkpoint.ok()) {
      return Annotate(RestoreFrom(*checkpoint, model, stream), checkpoint->path);
    }
    if (!may_begin || !none) {
      return absl::Status(
          checkpoint.status().code(),
          absl::StrFormat("--resume=%s: %s; %s", options_.resume, checkpoint.status().message(),
                          !takes_newest() ? OtherCheckpoints(options_.resume)
                          : none          ? "leave --resume out to start anew, or give "
                                            "--resume=auto, which does what it can"
                                          : "choose another --out to start anew"));
    }
  }
  return Begin(model, stream);
}

absl::Status RunState::Begin(Model& model, Stream& stream) {
  RETURN_IF_ERROR(model.Initialize(stream));
  if (options_.weights.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Weights weights, ReadWeights(options_.weights));
  RETURN_IF_ERROR(Annotate(CheckFit(weights.fit), weights.path));
  const auto match = MatchWeights(weights.tensors, options_.weights_map, model.plan().parameters);
  if (!match.ok()) {  // what is wrong with the map begins with its flag
    const bool of_map = absl::StartsWith(match.status().message(), "--");
    return of_map ? match.status() : Annotate(match.status(), weights.path);
  }
  RETURN_IF_ERROR(Annotate(model.LoadSome(stream, match->tensors), weights.path));
  Say(ToString(*match));
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> RunState::Find() {
  namespace fs = std::filesystem;
  const bool latest = takes_newest();
  const CheckpointStore store(absl::StrCat(options_.out, "/checkpoints"));
  fs::path given = options_.resume;
  if (!given.has_filename()) given = given.parent_path();
  std::optional<GatheredCheckpoint> gathered;
  if (latest) {
    ASSIGN_OR_RETURN(gathered, GatherCheckpoint(communication_, store.folder(), ""));
  } else if (given.has_filename()) {
    const fs::path root = given.has_parent_path() ? given.parent_path() : ".";
    ASSIGN_OR_RETURN(gathered, GatherCheckpoint(communication_, root, given.filename()));
  }
  ASSIGN_OR_RETURN(newest_at_restore_, store.NewestStep());
  std::vector<std::string> skipped;
  absl::StatusOr<Checkpoint> checkpoint = gathered ? LoadCheckpoint(gathered->path)
                                          : latest ? store.LoadLatest(&skipped)
                                                   : LoadCheckpoint(options_.resume);
  if (gathered) skipped = gathered->skipped;
  for (const std::string& line : skipped) Say(absl::StrCat("warning: skipped ", line));
  const bool keeps_none = files_of_all_.empty() && !leader();
  if (gathered && gathered->received && keeps_none) received_ = gathered->path;
  return checkpoint;
}

absl::Status RunState::CheckFit(const Fit& of_weights) const {
  if (of_weights.name.empty()) return absl::OkStatus();  // it is not known
  const std::string difference = DifferenceOf(of_weights, options_.fit);
  if (difference.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("was made with another %s: %s; name that of its run in data.train",
                      of_weights.name, difference));
}

absl::Status RunState::RestoreFrom(const Checkpoint& checkpoint, Model& model, Stream& stream) {
  const CheckpointState& state = checkpoint.state;
  if (state.seed() != config_.seed()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("was made with seed %d, not %d; pass --seed=%d", state.seed(),
                        config_.seed(), state.seed()));
  }
  RETURN_IF_ERROR(model.Load(stream, checkpoint.weights, &checkpoint.optimizer));
  if (state.net() != options_.net_text) {
    return absl::InvalidArgumentError(
        "was made with another net (its layers' settings differ); to start a new run from its "
        "weights, give it to --weights");
  }
  RETURN_IF_ERROR(CheckFit(FitOf(state)));
  RETURN_IF_ERROR(model.LoadCarried(stream, checkpoint.carried));
  step_ = state.step();
  position_ = state.position();
  resumed_ = true;
  if (state.has_loss_scale() && config_.loss_scale().has_dynamic()) {
    const CheckpointState::LossScale& saved = state.loss_scale();
    loss_scale = {saved.scale(), saved.good_steps(), saved.skipped()};
  }
  std::error_code ignored;
  continues_ = std::filesystem::equivalent(
      std::filesystem::weakly_canonical(checkpoint.path, ignored).parent_path(),
      absl::StrCat(options_.out, "/checkpoints"), ignored);
  TrainerConfig before;
  std::string changes;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&changes);
  if (google::protobuf::TextFormat::ParseFromString(state.trainer(), &before) &&
      !differencer.Compare(before, config_)) {
    Say(absl::StrCat("warning: the trainer has changed since the checkpoint: ",
                     absl::StrReplaceAll(absl::StripSuffix(changes, "\n"), {{"\n", "; "}})));
  }
  for (const auto& [name, value] : state.choices()) {
    const auto now = options_.choices.find(name);
    const auto older = options_.older_choices.find(name);
    const bool same = now == options_.choices.end() || now->second == value ||
                      (older != options_.older_choices.end() && older->second == value);
    if (!same) {
      Say(
          absl::StrFormat("warning: resumed with %s %s, the checkpoint was made with %s: the run "
                          "goes on, but not with the same bits",
                          name, now->second, value));
    }
  }
  RETURN_IF_ERROR(communication_.CheckEqual(
      "the checkpoint to resume from",
      absl::StrCat(std::filesystem::path(checkpoint.path).filename().string(), " ", step_, " ",
                   position_)));
  Say(absl::StrFormat("resumed at step %d from %s", step_, checkpoint.path));
  return absl::OkStatus();
}

absl::Status RunState::OpenOutput(bool test_again, int64_t total_steps) {
  total_steps_ = total_steps;
  if (leader()) RETURN_IF_ERROR(OpenOutputOfLeader(test_again));
  return files_of_all_.empty() ? absl::OkStatus() : MeetWriters();
}

absl::Status RunState::MeetWriters() {
  ASSIGN_OR_RETURN(const std::string token,
                   TextOfLeader(communication_, "the run's name of temporary files",
                                absl::StrCat(absl::ToUnixNanos(absl::Now()))));
  const std::string folder = options_.out + "/checkpoints";
  checkpoints_.emplace(folder, token);
  ASSIGN_OR_RETURN(folders_, CheckpointFolders::Meet(communication_, folder, token));
  if (leader() || !folders_->Publishes(communication_.rank())) return absl::OkStatus();
  checkpoints_->RemoveTemporaries();
  ASSIGN_OR_RETURN(const int64_t newest, checkpoints_->NewestStep());
  if (newest < 0 || resumed_) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrFormat(
      "%s of rank %d, which is not rank 0's, already holds checkpoints; choose another --out, or "
      "delete them there",
      options_.out, communication_.rank()));
}

absl::Status RunState::OpenOutputOfLeader(bool test_again) {
  checkpoints_.emplace(absl::StrCat(options_.out, "/checkpoints"));
  RETURN_IF_ERROR(checkpoints_->MakeFolder());
  ASSIGN_OR_RETURN(lock_, FolderLock::Take(options_.out));
  RETURN_IF_ERROR(checkpoints_->ProbeWritable());
  checkpoints_->RemoveTemporaries();
  ASSIGN_OR_RETURN(const int64_t newest, checkpoints_->NewestStep());
  if (newest >= 0 && options_.resume.empty()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s already holds checkpoints; go on with --resume=latest, or choose "
                        "another --out",
                        options_.out));
  }
  if (newest > step_ && !takes_newest()) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s holds a checkpoint of step %d, beyond the one to resume from (%d), which a later "
        "--resume=latest would take; choose another --out, or delete what is newer",
        options_.out, newest, step_));
  }
  if (newest > newest_at_restore_ && takes_newest()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s: another run has just saved step %d there; start once more to go on "
                        "from it",
                        options_.out, newest));
  }
  if (!continues_) {
    ASSIGN_OR_RETURN(const std::string kept, KeepEarlierMetrics(options_.out));
    if (!kept.empty()) Say(absl::StrCat("the metrics of an earlier run are now in ", kept));
  }
  if (!options_.fit.name.empty()) {
    RETURN_IF_ERROR(
        WriteFileAtomically(absl::StrCat(options_.out, "/", options_.fit.name),
                            [&](const FileSink& sink) { return sink(options_.fit.text); }));
  }
  ASSIGN_OR_RETURN(
      log_, RunLog::Open(options_.out, step_, test_again, total_steps_, SamplesAStep(config_)));
  return absl::OkStatus();
}

absl::Status RunState::Save(const Model& model, Stream& stream, bool tell) {
  RETURN_IF_ERROR(FinishSaving());
  copied_step_ = step_;
  saving_ = true;
  const auto files_of_rank = FilesOfRanks();
  copies_.reset();
  const bool several = folders_ && folders_->several();
  parts_.emplace(files_of_rank, communication_.rank(), several);
  if (several) copies_.emplace(*folders_, files_of_rank, communication_, *parts_);
  if (!leader() && files_of_all_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(model.CopyState(stream, copy_));
  tell_ = tell && leader();
  try {
    writing_ = std::async(std::launch::async,
                          [this, &model, state = State()] { return Write(model, state); });
  } catch (const std::system_error& error) {
    return absl::ErrnoToStatus(error.code().value(), "cannot start a thread to write a checkpoint");
  }
  return absl::OkStatus();
}

absl::Status RunState::FinishSaving() {
  if (!std::exchange(saving_, false)) return absl::OkStatus();
  // Who has written waits in a sum for who has not, and who has not comes there now and then.
  while (!parts_->complete()) {
    if (copies_) RETURN_IF_ERROR(copies_->Collect(/*wait=*/true));
    parts_->AwaitOwn(kPause);
    RETURN_IF_ERROR(CheckSaving());
    std::vector<double> numbers;
    AppendTo(numbers);
    RETURN_IF_ERROR(communication_.Sum("the parts of a checkpoint", TensorOf(numbers)));
    Take(numbers);
  }
  RETURN_IF_ERROR(
      communication_.LeaderDoes("writing a checkpoint", [this] { return AwaitSaving(); }));
  RETURN_IF_ERROR(AwaitSaving());  // of the others: their threads have done their part
  if (copies_) RETURN_IF_ERROR(communication_.Barrier());  // under its name, too
  saved_step_ = copied_step_;
  if (saved_step_ == total_steps_)
    copy_ = Buffer();  // nothing comes that it would be made again for
  return absl::OkStatus();
}

absl::Status RunState::CheckSaving() {
  using std::chrono::seconds;
  if (!writing_.valid() || writing_.wait_for(seconds(0)) != std::future_status::ready) {
    return absl::OkStatus();
  }
  return AwaitSaving();
}

absl::Status RunState::AwaitSaving() {
  if (!writing_.valid()) return absl::OkStatus();
  parts_->GiveUp();
  const Written written = writing_.get();
  if (written.published) saved_step_ = copied_step_;
  if (!written.deleted.ok()) {
    Say(absl::StrCat("warning: an old checkpoint stays: ", std::string(written.deleted.message())));
  }
  if (written.status.ok() && std::exchange(tell_, false)) {
    Say(absl::StrFormat("checkpoint of step %d written", copied_step_));
  }
  return written.status;
}

void RunState::AppendTo(std::vector<double>& numbers) {
  // An error of it is that of every operation.
  if (copies_) copies_->Collect(/*wait=*/false).IgnoreError();
  if (parts_) parts_->AppendTo(numbers);
}

void RunState::Take(std::span<const double> sums) {
  if (!parts_) return;
  parts_->Take(sums);
  if (copies_ && parts_->reached(CheckpointParts::kWritten)) copies_->Send();
}

CheckpointState RunState::State() const {
  CheckpointState state;
  state.set_step(step_);
  state.set_position(position_);
  state.set_seed(config_.seed());
  state.set_total_steps(total_steps_);
  state.set_net(options_.net_text);
  state.set_trainer(options_.trainer_text);
  state.mutable_choices()->insert(options_.choices.begin(), options_.choices.end());
  if (loss_scale) {
    CheckpointState::LossScale& saved = *state.mutable_loss_scale();
    saved.set_scale(loss_scale->scale);
    saved.set_good_steps(loss_scale->good_steps);
    saved.set_skipped(loss_scale->skipped);
  }
  if (!options_.fit.name.empty()) {
    state.set_fit_name(options_.fit.name);
    state.set_fit_text(options_.fit.text);
  }
  return state;
}

RunState::Written RunState::Write(const Model& model, const CheckpointState& state) {
  Written written;
  // First, so that a resumed run finds the lines of all steps before the checkpoint.
  const absl::Status logged = Flush();
  written.status = WriteAndPublish(model, state, &written.published);
  if (written.published) {
    written.deleted = checkpoints_->DeleteOlder(state.step(), config_.keep_checkpoints());
    written.status = logged;
  } else if (leader() && files_of_all_.empty()) {
    // Where others write as well they may not be done: the next run here removes it.
    checkpoints_->Discard(state.step());
  }
  return written;
}

absl::Status RunState::WriteAndPublish(const Model& model, const CheckpointState& state,
                                       bool* published) {
  Model::State parts;
  RETURN_IF_ERROR(model.UnpackState({copy_.data(), copy_.bytes()}, parts));
  RETURN_IF_ERROR(Annotate(CheckFinite(parts.weights.tensors),
                           absl::StrFormat("step %d: the weights", state.step())));
  std::map<std::string, uint32_t> crc32_of_file;  // of this rank alone
  const auto write = [&](const std::string& file, const HostTensors& tensors) -> absl::Status {
    const std::string name = NameOf(file, communication_.rank());
    if (name.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(crc32_of_file[name], checkpoints_->Write(state.step(), name, tensors.tensors));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(write(kWeightsFile, parts.weights));
  RETURN_IF_ERROR(write(kOptimizerFile, parts.optimizer));
  RETURN_IF_ERROR(write(kCarriedFile, parts.carried));
  if (copies_) RETURN_IF_ERROR(copies_->Pack(*checkpoints_, state.step()));
  if (!files_of_all_.empty()) {
    for (const auto& [name, crc32] : crc32_of_file) parts_->Wrote(name, crc32);
  }
  if (copies_) return PublishCopied(state, published);
  if (!leader()) return absl::OkStatus();
  if (!files_of_all_.empty()) {
    ASSIGN_OR_RETURN(crc32_of_file, AwaitParts(state.step()));
  }
  RETURN_IF_ERROR(checkpoints_->Publish(state, crc32_of_file));
  *published = true;
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, uint32_t>> RunState::AwaitParts(int64_t step) {
  // A rank whose step fails tells no more; what it has written is there, and it waits a little
  // before it ends the others.
  absl::StatusOr<std::map<std::string, uint32_t>> written;
  RETURN_IF_ERROR(AwaitOthers(step, [&](std::chrono::milliseconds most) {
    written = parts_->Await(CheckpointParts::kWritten, most)
                  ? parts_->crc32_of_file()
                  : checkpoints_->Written(step, parts_->names());
    return !written.ok() || !written->empty();
  }));
  return written;
}

// The leader publishes once everything is on the disks, the states of the other folders too; these
// are given their name after that.  So what the leader has published is there, under a name or
// not (GatherCheckpoint takes either), and what it has not, nobody has.
absl::Status RunState::PublishCopied(const CheckpointState& state, bool* published) {
  using enum CheckpointParts::Stage;
  using std::chrono::milliseconds;
  const int64_t step = state.step();
  const bool publishes = folders_->Publishes(communication_.rank());
  const auto by_all = [&](CheckpointParts::Stage stage) {
    return AwaitOthers(step, [=, this](milliseconds most) { return parts_->Await(stage, most); });
  };
  RETURN_IF_ERROR(by_all(kWritten));
  RETURN_IF_ERROR(AwaitOthers(step, [&](milliseconds most) { return parts_->AwaitMail(most); }));
  const auto crc32_of_file = parts_->crc32_of_file();
  RETURN_IF_ERROR(copies_->Write(*checkpoints_, step, crc32_of_file));
  if (publishes && !leader()) RETURN_IF_ERROR(checkpoints_->WriteState(state, crc32_of_file));
  parts_->Reached(kCopied);
  if (!publishes) return absl::OkStatus();
  if (leader()) {
    RETURN_IF_ERROR(by_all(kCopied));
    RETURN_IF_ERROR(checkpoints_->WriteState(state, crc32_of_file));
  } else if (!by_all(kPublished).ok()) {
    return absl::OkStatus();  // this rank has done its part
  }
  RETURN_IF_ERROR(checkpoints_->PublishWritten(step));
  if (leader()) parts_->Reached(kPublished);
  *published = true;
  return absl::OkStatus();
}

absl::Status RunState::AwaitOthers(int64_t step,
                                   const std::function<bool(std::chrono::milliseconds)>& holds) {
  for (int looks = kLooks; looks > 0; looks -= parts_->given_up()) {
    if (holds(kBetweenLooks)) return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrFormat(
      "the checkpoint of step %d is given up: not every rank has written its part", step));
}

std::string RunState::NameOf(const std::string& file, int rank) const {
  const bool is_leader = rank == 0;
  if (file == kWeightsFile) return is_leader ? file : "";
  if (std::ranges::count(files_of_all_, file) > 0) {
    return PartName(file, rank, communication_.size());
  }
  if (file == kCarriedFile && !has_carried_) return "";
  return is_leader ? PartName(file, 0, 1) : "";
}

std::vector<std::vector<std::string>> RunState::FilesOfRanks() const {
  std::vector<std::vector<std::string>> files_of_rank(static_cast<size_t>(communication_.size()));
  for (int rank = 0; rank < communication_.size() && !files_of_all_.empty(); ++rank) {
    for (const char* file : {kWeightsFile, kOptimizerFile, kCarriedFile}) {
      const std::string name = NameOf(file, rank);
      if (!name.empty()) files_of_rank[static_cast<size_t>(rank)].push_back(name);
    }
  }
  return files_of_rank;
}

void RunState::Say(const std::string& line) const {
  if (log_) return log_->Line(line);
  if (!leader()) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace gyre
