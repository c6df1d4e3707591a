#include "engine/training/run_state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/atomic_file.h"
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

// Rank 0's, on all.
absl::StatusOr<std::string> TextOfLeader(ProcessGroup& communication, std::string_view what,
                                         const std::string& text) {
  const bool leader = communication.rank() == 0;
  std::vector<double> length = {leader ? static_cast<double>(text.size()) : 0};
  RETURN_IF_ERROR(communication.Sum(what, TensorOf(length)));
  std::vector<double> bytes(static_cast<size_t>(length[0]));
  if (leader) std::ranges::copy(text, bytes.begin());
  RETURN_IF_ERROR(communication.Sum(what, TensorOf(bytes)));
  return std::string(bytes.begin(), bytes.end());
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
  return communication_.CheckEqual("the weights to start from", digest);
}

absl::Status RunState::SetWeights(Model& model, Stream& stream) {
  if (!options_.resume.empty() && !options_.weights.empty()) {
    return absl::InvalidArgumentError(
        "--weights starts a new run and --resume goes on with one that has weights; give one");
  }
  if (options_.weights.empty() && !options_.weights_map.empty()) {
    return absl::InvalidArgumentError(
        "--weights_map renames the tensors of --weights; give that, too");
  }
  if (options_.resume.empty()) {
    RETURN_IF_ERROR(model.Initialize(stream));
    if (options_.weights.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Weights weights, ReadWeights(options_.weights));
    RETURN_IF_ERROR(Annotate(CheckFit(weights.fit), weights.path));
    const auto match = MatchWeights(weights.tensors, options_.weights_map, model.plan().parameters);
    if (!match.ok()) return Annotate(match.status(), weights.path);
    RETURN_IF_ERROR(Annotate(model.LoadSome(stream, match->tensors), weights.path));
    Say(ToString(*match));
    return absl::OkStatus();
  }
  std::vector<std::string> skipped;
  const bool latest = options_.resume == "latest";
  CheckpointStore store(absl::StrCat(options_.out, "/checkpoints"));
  ASSIGN_OR_RETURN(newest_at_restore_, store.NewestStep());
  const absl::StatusOr<Checkpoint> checkpoint =
      latest ? store.LoadLatest(&skipped) : LoadCheckpoint(options_.resume);
  for (const std::string& line : skipped) Say(absl::StrCat("warning: skipped ", line));
  if (!checkpoint.ok()) {
    return absl::Status(
        checkpoint.status().code(),
        absl::StrFormat("--resume=%s: %s; %s", options_.resume, checkpoint.status().message(),
                        latest ? "leave --resume out to start anew"
                               : "give \"latest\", or the folder of one checkpoint, such as "
                                 "runs/a/checkpoints/step_00000200"));
  }
  return Annotate(RestoreFrom(*checkpoint, model, stream), checkpoint->path);
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
    if (now != options_.choices.end() && now->second != value) {
      Say(
          absl::StrFormat("warning: resumed with %s %s, the checkpoint was made with %s: the run "
                          "goes on, but not with the same bits",
                          name, now->second, value));
    }
  }
  RETURN_IF_ERROR(communication_.CheckEqual(
      "the checkpoint to resume from", absl::StrCat(checkpoint.path, " ", step_, " ", position_)));
  Say(absl::StrFormat("resumed at step %d from %s", step_, checkpoint.path));
  return absl::OkStatus();
}

absl::Status RunState::OpenOutput(bool test_again) {
  if (leader()) RETURN_IF_ERROR(OpenOutputOfLeader(test_again));
  return files_of_all_.empty() ? absl::OkStatus() : MeetWriters();
}

absl::Status RunState::MeetWriters() {
  ASSIGN_OR_RETURN(const std::string folder, TextOfLeader(communication_, "the checkpoints' folder",
                                                          options_.out + "/checkpoints"));
  ASSIGN_OR_RETURN(const std::string token,
                   TextOfLeader(communication_, "the run's name of temporary files",
                                absl::StrCat(absl::ToUnixNanos(absl::Now()))));
  checkpoints_.emplace(folder, token);
  if (!leader()) RETURN_IF_ERROR(checkpoints_->LeaveMark(communication_.rank()));
  RETURN_IF_ERROR(communication_.Barrier());
  std::vector<double> unseen = {0};  // the first rank whose mark the leader lacks
  for (int rank = 1; leader() && rank < communication_.size() && unseen[0] == 0; ++rank) {
    if (!checkpoints_->SeesMark(rank)) unseen[0] = rank;
  }
  const absl::Status told = communication_.Sum("the marks that rank 0 lacks", TensorOf(unseen));
  if (!leader()) checkpoints_->RemoveMark(communication_.rank());
  if (told.ok() && unseen[0] == 0) return absl::OkStatus();
  std::error_code not_empty;
  if (!leader()) std::filesystem::remove(folder, not_empty);
  RETURN_IF_ERROR(told);
  return absl::FailedPreconditionError(absl::StrFormat(
      "rank %.0f has left a file in %s, which rank 0 does not find there: each rank writes a part "
      "of a checkpoint of this run; give an --out in a file system that all hosts share",
      unseen[0], folder));
}

absl::Status RunState::OpenOutputOfLeader(bool test_again) {
  checkpoints_.emplace(absl::StrCat(options_.out, "/checkpoints"));
  RETURN_IF_ERROR(checkpoints_->ProbeWritable());
  ASSIGN_OR_RETURN(lock_, FolderLock::Take(options_.out));
  checkpoints_->RemoveTemporaries();
  ASSIGN_OR_RETURN(const int64_t newest, checkpoints_->NewestStep());
  if (newest >= 0 && options_.resume.empty()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s already holds checkpoints; go on with --resume=latest, or choose "
                        "another --out",
                        options_.out));
  }
  if (newest > step_ && options_.resume != "latest") {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s holds a checkpoint of step %d, beyond the one to resume from (%d), which a later "
        "--resume=latest would take; choose another --out, or delete what is newer",
        options_.out, newest, step_));
  }
  if (newest > newest_at_restore_ && options_.resume == "latest") {
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
  parts_.emplace(files_of_all_, communication_.rank(), communication_.size());
  if (!leader() && files_of_all_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(model.CopyState(stream, copy_));
  tell_ = tell && leader();
  writing_ = std::async(std::launch::async,
                        [this, &model, state = State()] { return Write(model, state); });
  return absl::OkStatus();
}

absl::Status RunState::FinishSaving() {
  if (!std::exchange(saving_, false)) return absl::OkStatus();
  // Who has written waits in a sum for who has not, and who has not comes there now and then.
  while (!parts_->complete()) {
    parts_->AwaitOwn(kPause);
    RETURN_IF_ERROR(CheckSaving());
    std::vector<double> numbers;
    parts_->AppendTo(numbers);
    RETURN_IF_ERROR(communication_.Sum("the parts of a checkpoint", TensorOf(numbers)));
    parts_->Take(numbers);
  }
  RETURN_IF_ERROR(
      communication_.LeaderDoes("writing a checkpoint", [this] { return AwaitSaving(); }));
  RETURN_IF_ERROR(AwaitSaving());  // of the others: their threads have done their part
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

void RunState::AppendTo(std::vector<double>& numbers) const {
  if (parts_) parts_->AppendTo(numbers);
}

void RunState::Take(std::span<const double> sums) {
  if (parts_) parts_->Take(sums);
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
  written.status = WriteAndPublish(model, state);
  if (!leader()) return written;
  if (!written.status.ok()) {
    // Where others write as well they may not be done: the next run here removes it.
    if (files_of_all_.empty()) checkpoints_->Discard(state.step());
    return written;
  }
  written.published = true;
  written.deleted = checkpoints_->DeleteOlder(state.step(), config_.keep_checkpoints());
  written.status = logged;
  return written;
}

absl::Status RunState::WriteAndPublish(const Model& model, const CheckpointState& state) {
  Model::State parts;
  RETURN_IF_ERROR(model.UnpackState({copy_.data(), copy_.bytes()}, parts));
  RETURN_IF_ERROR(Annotate(CheckFinite(parts.weights.tensors),
                           absl::StrFormat("step %d: the weights", state.step())));
  std::map<std::string, uint32_t> crc32_of_file;  // of this rank alone
  const auto write = [&](const std::string& name, const HostTensors& tensors) -> absl::Status {
    ASSIGN_OR_RETURN(crc32_of_file[name], checkpoints_->Write(state.step(), name, tensors.tensors));
    return absl::OkStatus();
  };
  const auto of_all = [&](const char* file, const HostTensors& tensors) -> absl::Status {
    const auto found = std::ranges::find(files_of_all_, file);
    if (found == files_of_all_.end()) {
      return leader() ? write(PartName(file, 0, 1), tensors) : absl::OkStatus();
    }
    const std::string name = PartName(file, communication_.rank(), communication_.size());
    RETURN_IF_ERROR(write(name, tensors));
    parts_->Wrote(static_cast<size_t>(found - files_of_all_.begin()), crc32_of_file[name]);
    return absl::OkStatus();
  };
  if (leader()) RETURN_IF_ERROR(write(kWeightsFile, parts.weights));
  RETURN_IF_ERROR(of_all(kOptimizerFile, parts.optimizer));
  if (has_carried_) RETURN_IF_ERROR(of_all(kCarriedFile, parts.carried));
  if (!leader()) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto of_all_ranks, AwaitParts(state.step()));
  crc32_of_file.merge(of_all_ranks);
  return checkpoints_->Publish(state, crc32_of_file);
}

absl::StatusOr<std::map<std::string, uint32_t>> RunState::AwaitParts(int64_t step) {
  // A rank whose step fails tells no more; what it has written is there, and it waits a little
  // before it ends the others.
  for (int looks = kLooks; looks > 0; looks -= parts_->given_up()) {
    if (parts_->Await(kBetweenLooks)) return parts_->crc32_of_file();
    ASSIGN_OR_RETURN(auto written, checkpoints_->Written(step, parts_->names()));
    if (!written.empty()) return written;
  }
  return absl::AbortedError(absl::StrFormat(
      "the checkpoint of step %d is given up: not every rank has written its part", step));
}

void RunState::Say(const std::string& line) const {
  if (log_) return log_->Line(line);
  if (!leader()) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace gyre
