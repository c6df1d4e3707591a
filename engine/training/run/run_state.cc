#include "engine/training/run/run_state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {
namespace {

// For which a rank that writes lets the others wait, before it tells that it lives.
constexpr std::chrono::milliseconds kPause(100);
// How often it is seen whether the others' shards are there, and how often yet once a run has
// failed: together less than a failing rank waits before it ends the others.
constexpr std::chrono::milliseconds kBetweenLooks(250);
constexpr int kLooks = 6;

}  // namespace

void RunState::Advance() {
  ++step_;
  position_ += SamplesAStep(config_);
}

absl::Status RunState::FindStart(const ModelPlan& any, const PlanOfStep& plan_of) {
  if (any.options.shape.shard_optimizer) files_of_all_.push_back(kOptimizerFile);
  has_carried_ = !any.train->spec.carried.empty();
  if (has_carried_ && communication_.size() > 1) files_of_all_.push_back(kCarriedFile);
  ASSIGN_OR_RETURN(start_, gyre::FindStart(config_, options_, plan_of, communication_, keeps()));
  step_ = start_.step;
  position_ = start_.position;
  if (!start_.checkpoint) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ModelPlan* const plan, plan_of(step_));
  TakeCheckpoint(*plan);
  return absl::OkStatus();
}

absl::Status RunState::FindSaved(const ModelPlan& plan) {
  ASSIGN_OR_RETURN(start_,
                   gyre::FindSaved(config_, options_, plan, step_, communication_, keeps()));
  TakeCheckpoint(plan);
  return absl::OkStatus();
}

void RunState::TakeCheckpoint(const ModelPlan& plan) {
  const CheckpointState& state = start_.checkpoint->state;
  bad_samples = state.bad_samples();
  if (!config_.loss_scale().has_dynamic() || !state.has_loss_scale()) return;
  const CheckpointState::LossScale& saved = state.loss_scale();
  loss_scale = {saved.scale(), saved.good_steps(), saved.skipped()};
  skipped_before = {saved.skipped_before().begin(), saved.skipped_before().end()};
  if (plan.options.shape.first_step() == step_) skipped_before.emplace(step_, saved.skipped());
}

absl::Status RunState::Restore(Model& model, Stream& stream) {
  for (const std::string& warning : start_.warnings) Warn(warning);
  if (start_.checkpoint) {
    const Checkpoint& from = *start_.checkpoint;
    RETURN_IF_ERROR(Annotate(model.Load(stream, from.weights, &from.optimizer), start_.path));
    RETURN_IF_ERROR(Annotate(model.LoadCarried(stream, from.carried), start_.path));
    const bool between_phases = step_ == saved_step_;
    if (!between_phases) Say(absl::StrFormat("resumed at step %d from %s", step_, start_.path));
  } else {
    RETURN_IF_ERROR(model.Initialize(stream));
  }
  if (start_.weights) {
    RETURN_IF_ERROR(Annotate(model.LoadSome(stream, start_.weights->tensors), start_.path));
    if (start_.averages) Say(absl::StrCat("weights: the averages (ema) of ", start_.path));
    Say(ToString(*start_.weights));
  }
  if (model.has_averages() && !start_.resumed) RETURN_IF_ERROR(model.BeginAverages(stream));
  start_.checkpoint.reset();  // with the memory of its weights
  start_.weights.reset();
  ASSIGN_OR_RETURN(const std::string digest, model.Sha256OfWeights(stream));
  RETURN_IF_ERROR(communication_.CheckEqual("the weights to start from", digest));
  return RemoveReceived();
}

// Nobody here would ever delete it, and a later run might take it for its own.
absl::Status RunState::RemoveReceived() {
  if (start_.received.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveFolderAtomically(std::exchange(start_.received, "")));
  std::error_code not_empty;
  std::filesystem::remove(options_.out + "/checkpoints", not_empty);
  std::filesystem::remove(options_.out, not_empty);
  return absl::OkStatus();
}

absl::Status RunState::OpenOutput(bool test_again, int64_t total_steps) {
  total_steps_ = total_steps;
  if (leader()) RETURN_IF_ERROR(OpenOutputOfLeader(test_again));
  return files_of_all_.empty() ? absl::OkStatus() : MeetWriters();
}

absl::Status RunState::MeetWriters() {
  ASSIGN_OR_RETURN(const std::string token,
                   communication_.TextOfLeader("the run's name of temporary files",
                                               absl::StrCat(absl::ToUnixNanos(absl::Now()))));
  const std::string folder = options_.out + "/checkpoints";
  checkpoints_.emplace(folder, token);
  ASSIGN_OR_RETURN(folders_, CheckpointFolders::Meet(communication_, folder, token));
  if (leader() || !folders_->Publishes(communication_.rank())) return absl::OkStatus();
  RemoveTemporaries(checkpoints_->folder()).IgnoreError();  // where they stay they harm nobody
  ASSIGN_OR_RETURN(const int64_t newest, checkpoints_->NewestStep());
  if (newest < 0 || start_.resumed) return absl::OkStatus();
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
  RemoveTemporaries(checkpoints_->folder()).IgnoreError();  // where they stay they harm nobody
  ASSIGN_OR_RETURN(const int64_t newest, checkpoints_->NewestStep());
  RETURN_IF_ERROR(CheckOut(options_, newest, step_));
  if (newest > start_.newest && TakesNewest(options_)) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s: another run has just saved step %d there; start once more to go on "
                        "from it",
                        options_.out, newest));
  }
  if (options_.quiet) return absl::OkStatus();
  RemoveTemporaries(options_.out, "metrics.jsonl").IgnoreError();
  if (!start_.continues) {
    ASSIGN_OR_RETURN(const std::string kept, KeepEarlierMetrics(options_.out));
    if (!kept.empty()) Say(absl::StrCat("the metrics of an earlier run are now in ", kept));
  }
  for (const auto& [name, text] : options_.fit.value_or(Fit())) {
    RemoveTemporaries(options_.out, name).IgnoreError();
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(options_.out, "/", name), text));
  }
  ASSIGN_OR_RETURN(
      log_, MetricsLog::Open(options_.out, step_, test_again, total_steps_, SamplesAStep(config_)));
  return absl::OkStatus();
}

absl::Status RunState::Save(const Model& model, Stream& stream, bool tell) {
  RETURN_IF_ERROR(FinishSaving());
  copied_step_ = step_;
  saving_ = true;
  const bool several = folders_ && folders_->several();
  shards_.emplace(FilesOfRanks(), several ? &*folders_ : nullptr, communication_);
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
  while (!shards_->complete()) {
    RETURN_IF_ERROR(shards_->FinishExchange());
    shards_->AwaitOwn(kPause);
    RETURN_IF_ERROR(CheckSaving());
    std::vector<double> numbers;
    AppendTo(numbers);
    RETURN_IF_ERROR(communication_.Sum("the parts of a checkpoint", numbers));
    Take(numbers);
  }
  RETURN_IF_ERROR(
      communication_.LeaderDoes("writing a checkpoint", [this] { return AwaitSaving(); }));
  RETURN_IF_ERROR(AwaitSaving());  // of the others: their threads have done their part
  if (shards_->copied()) RETURN_IF_ERROR(communication_.Barrier());  // under its name, too
  saved_step_ = copied_step_;
  if (saved_step_ == total_steps_) copy_ = Buffer();  // nothing more will be saved
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
  shards_->GiveUp();
  const Written written = writing_.get();
  if (written.published) saved_step_ = copied_step_;
  if (!written.deleted.ok()) {
    Warn(absl::StrCat("an old checkpoint stays: ", std::string(written.deleted.message())));
  }
  if (written.status.ok() && std::exchange(tell_, false)) {
    Say(absl::StrFormat("checkpoint of step %d written", copied_step_));
  }
  return written.status;
}

CheckpointState RunState::State() const {
  CheckpointState state;
  state.set_step(step_);
  state.set_position(position_);
  state.set_seed(config_.seed());
  state.set_total_steps(total_steps_);
  state.set_net(options_.net_text);
  state.set_trainer(options_.trainer_text);
  state.set_trainer_file(options_.trainer_file);
  state.mutable_choices()->insert(options_.choices.begin(), options_.choices.end());
  if (loss_scale) {
    CheckpointState::LossScale& saved = *state.mutable_loss_scale();
    saved.set_scale(loss_scale->scale);
    saved.set_good_steps(loss_scale->good_steps);
    saved.set_skipped(loss_scale->skipped);
    saved.mutable_skipped_before()->insert(skipped_before.begin(), skipped_before.end());
  }
  if (config_.optimizer().has_ema()) state.set_averages(true);
  if (bad_samples > 0) state.set_bad_samples(bad_samples);
  if (options_.fit) state.mutable_fit()->insert(options_.fit->begin(), options_.fit->end());
  return state;
}

RunState::Written RunState::Write(const Model& model, const CheckpointState& state) {
  // First, so that a resumed run finds the lines of all steps before the checkpoint.
  const absl::Status logged = Flush();
  const absl::StatusOr<bool> published = WriteAndPublish(model, state);
  Written written = {.status = published.status(), .published = published.value_or(false)};
  if (written.published) {
    written.deleted = checkpoints_->DeleteOlder(state.step(), config_.keep_checkpoints());
    written.status = logged;
  } else if (leader() && files_of_all_.empty()) {
    // Where others write as well they may not be done: the next run here removes it.
    checkpoints_->Discard(state.step());
  }
  return written;
}

absl::StatusOr<bool> RunState::WriteAndPublish(const Model& model, const CheckpointState& state) {
  Model::UnpackedState unpacked;
  RETURN_IF_ERROR(model.UnpackState({copy_.data(), copy_.bytes()}, unpacked));
  RETURN_IF_ERROR(Annotate(CheckFiniteTensors(unpacked.weights.tensors),
                           absl::StrFormat("step %d: the weights", state.step())));
  std::map<std::string, uint32_t> crc32_of_file;  // of this rank alone
  const auto write = [&](const std::string& file, const HostTensors& tensors) -> absl::Status {
    const std::string name = NameOf(file, communication_.rank());
    if (name.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(crc32_of_file[name], checkpoints_->Write(state.step(), name, tensors.tensors));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(write(kWeightsFile, unpacked.weights));
  RETURN_IF_ERROR(write(kOptimizerFile, unpacked.optimizer));
  RETURN_IF_ERROR(write(kCarriedFile, unpacked.carried));
  if (shards_->copied()) RETURN_IF_ERROR(shards_->Pack(*checkpoints_, state.step()));
  if (!files_of_all_.empty()) {
    for (const auto& [name, crc32] : crc32_of_file) shards_->Wrote(name, crc32);
  }
  if (shards_->copied()) return PublishCopied(state);
  if (!leader()) return false;
  if (!files_of_all_.empty()) {
    ASSIGN_OR_RETURN(crc32_of_file, AwaitShards(state.step()));
  }
  RETURN_IF_ERROR(checkpoints_->Publish(state, crc32_of_file));
  return true;
}

absl::StatusOr<std::map<std::string, uint32_t>> RunState::AwaitShards(int64_t step) {
  // A rank whose step fails tells no more; what it has written is there, and it waits a little
  // before it ends the others.
  absl::StatusOr<std::map<std::string, uint32_t>> written;
  RETURN_IF_ERROR(AwaitOthers(step, [&](std::chrono::milliseconds most) {
    written = shards_->Await(CheckpointShards::kWritten, most)
                  ? shards_->crc32_of_file()
                  : checkpoints_->Written(step, shards_->names());
    return !written.ok() || !written->empty();
  }));
  return written;
}

// The leader publishes once everything is on the disks, the states of the other folders too; these
// are given their name after that.  So what the leader has published is there, under a name or
// not (GatherCheckpoint takes either), and what it has not, nobody has.
absl::StatusOr<bool> RunState::PublishCopied(const CheckpointState& state) {
  using enum CheckpointShards::CheckpointStage;
  using std::chrono::milliseconds;
  const int64_t step = state.step();
  const bool publishes = folders_->Publishes(communication_.rank());
  const auto by_all = [&](CheckpointShards::CheckpointStage stage) {
    return AwaitOthers(step, [=, this](milliseconds most) { return shards_->Await(stage, most); });
  };
  RETURN_IF_ERROR(by_all(kWritten));
  RETURN_IF_ERROR(AwaitOthers(step, [&](milliseconds most) { return shards_->AwaitCopies(most); }));
  const auto crc32_of_file = shards_->crc32_of_file();
  RETURN_IF_ERROR(shards_->WriteCopies(*checkpoints_, step));
  if (publishes && !leader()) RETURN_IF_ERROR(checkpoints_->WriteState(state, crc32_of_file));
  shards_->Reached(kCopied);
  if (!publishes) return false;
  if (leader()) {
    RETURN_IF_ERROR(by_all(kCopied));
    RETURN_IF_ERROR(checkpoints_->WriteState(state, crc32_of_file));
  } else if (!by_all(kPublished).ok()) {
    return false;  // this rank has done its part
  }
  RETURN_IF_ERROR(checkpoints_->PublishWritten(step));
  if (leader()) shards_->Reached(kPublished);
  return true;
}

absl::Status RunState::AwaitOthers(int64_t step,
                                   const std::function<bool(std::chrono::milliseconds)>& holds) {
  for (int looks = kLooks; looks > 0; looks -= shards_->given_up()) {
    if (holds(kBetweenLooks)) return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrFormat(
      "the checkpoint of step %d is given up: not every rank has written its part", step));
}

std::string RunState::NameOf(const std::string& file, int rank) const {
  if (std::ranges::count(files_of_all_, file) > 0) {
    return ShardName(file, rank, communication_.size());
  }
  if (rank != 0 || (file == kCarriedFile && !has_carried_)) return "";
  return file == kWeightsFile ? file : ShardName(file, 0, 1);
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

void RunState::Say(const std::string& lines) const {
  if (log_) return log_->Line(lines);
  if (!leader() || options_.quiet) return;
  std::printf("%s\n", lines.c_str());
  std::fflush(stdout);
}

void RunState::Warn(const std::string& text) const { Say(Wrapped("warning: ", text)); }

}  // namespace gyre
