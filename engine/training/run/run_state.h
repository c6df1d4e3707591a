// run_state.h: the position of a run and its output folder.  It is restored from the run's start
// (run_start.h).  A thread of its own writes checkpoints from a copy while training goes on.
// Rank 0 writes them.  Each rank writes its shards of sharded files (CheckpointShards).  With
// several folders, another rank stores a copy of each file (CheckpointFolders).
// Each rank has one and makes the same calls, from one thread.  Rank 0 alone prints.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/data/files/folder_lock.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/checkpoint/checkpoint_folders.h"
#include "engine/training/checkpoint/checkpoint_shards.h"
#include "engine/training/metrics/metrics_log.h"
#include "engine/training/model/model.h"
#include "engine/training/run/run_start.h"

namespace gyre {

class RunState {
 public:
  // config and communication must outlive it.
  RunState(const TrainerConfig& config, const TrainingOptions& options, ProcessGroup& communication)
      : config_(config), options_(options), communication_(communication) {}
  ~RunState() {
    if (shards_) shards_->GiveUp();
    RemoveReceived().IgnoreError();
  }

  int64_t step() const { return step_; }                // steps started
  int64_t position() const { return position_; }        // samples consumed
  int64_t copied_step() const { return copied_step_; }  // of the last Save, or -1
  int64_t saved_step() const { return saved_step_; }    // known to be written, or -1
  const TrainingOptions& options() const { return options_; }
  // Counts a started step.
  void Advance();
  // After the last finished step, or restored.  None if it is not dynamic or a run begins.
  std::optional<LossScaleState> loss_scale;
  // Of a dynamic loss scale: the steps that it skipped before a phase, by the phase's first step.
  std::map<int64_t, int64_t> skipped_before;
  // Likewise, samples of the epoch so far that could not be read.
  int64_t bad_samples = 0;

  // Finds the run's start and checks it against the plan of its phase.  Sets `step` and `position`.
  // Call it first.  `any` is a plan of any phase.  Errors: those of FindStart.
  absl::Status FindStart(const ModelPlan& any, const PlanOfStep& plan_of);
  // The same for the next phase, from the last checkpoint, which is of this step.  Restore follows.
  // Precondition: FinishSaving.
  absl::Status FindSaved(const ModelPlan& plan);
  const RunStart& start() const { return start_; }
  // Sets the model's weights and the optimizer's state, the same on all ranks.
  absl::Status Restore(Model& model, Stream& stream);
  // Opens the output folder.  Call it last before training, so that a run that cannot begin leaves
  // none.  `test_again` says that the restored step will be tested again.
  // Precondition: Restore.  Errors: also those of other ranks that will write.
  absl::Status OpenOutput(bool test_again, int64_t total_steps);
  // Starts a checkpoint, once the one before is written.  `tell` reports its end to people.  The
  // model must outlive the writing, and may change.  Precondition: started steps are finished.
  absl::Status Save(const Model& model, Stream& stream, bool tell);
  // Blocks until the checkpoint is complete on all ranks.  A rank alone reports its errors of
  // writing.
  absl::Status FinishSaving();
  // FinishSaving if several ranks write, ahead of a time in which no step sums their numbers.
  absl::Status SettleShards() { return files_of_all_.empty() ? absl::OkStatus() : FinishSaving(); }
  // Returns this rank's error if it has finished its part.  Never blocks.
  absl::Status CheckSaving();
  // Blocks until this rank has finished its part and returns its error.  Does not tell other ranks.
  // If they do not finish theirs within moments, the checkpoint is given up.
  absl::Status AwaitSaving();
  // Appends this rank's numbers about the checkpoint, for a sum over ranks.
  void AppendTo(std::vector<double>& numbers) {
    if (shards_) shards_->AppendTo(numbers);
  }
  // Receives these sums.  Once all files are written, may submit the copies to neighbours.
  void Take(std::span<const double> sums) {
    if (shards_) shards_->Take(sums);
  }

  // Syncs the log.  Errors: those of MetricsLog::Sync.
  absl::Status Flush() { return log_ ? log_->Sync() : absl::OkStatus(); }
  MetricsLog* log() { return log_.get(); }  // null except on rank 0
  // Print on rank 0.
  void Say(const std::string& lines) const;
  void Warn(const std::string& text) const;

 private:
  // Takes from the start's checkpoint what is no tensor.
  void TakeCheckpoint(const ModelPlan& plan);
  // Whether this rank writes files of checkpoints.
  bool keeps() const { return leader() || !files_of_all_.empty(); }
  // Removes a checkpoint that was sent to a rank that stores none.
  absl::Status RemoveReceived();
  struct Written {
    absl::Status status = {}, deleted = {};
    bool published = false;
  };
  CheckpointState State() const;
  // On the writing thread.  WriteAndPublish and PublishCopied return whether this rank published.
  Written Write(const Model& model, const CheckpointState& state);
  absl::StatusOr<bool> WriteAndPublish(const Model& model, const CheckpointState& state);
  // On rank 0's writing thread, waits for all ranks' files and returns their CRC-32s.
  absl::StatusOr<std::map<std::string, uint32_t>> AwaitShards(int64_t step);
  // With several folders: stores copies of other ranks' files, then publishes.
  absl::StatusOr<bool> PublishCopied(const CheckpointState& state);
  // Blocks until `holds`, called with a time to wait, returns true.  Errors: Aborted if the run has
  // failed.
  absl::Status AwaitOthers(int64_t step,
                           const std::function<bool(std::chrono::milliseconds)>& holds);
  // The name of a rank's shard of a file of ShardName, or of the weights.  "" if it writes none.
  std::string NameOf(const std::string& file, int rank) const;
  // Empty if rank 0 writes all.
  std::vector<std::vector<std::string>> FilesOfRanks() const;
  absl::Status OpenOutputOfLeader(bool test_again);
  absl::Status MeetWriters();
  bool leader() const { return communication_.rank() == 0; }

  const TrainerConfig& config_;
  const TrainingOptions options_;
  ProcessGroup& communication_;
  int64_t total_steps_ = 0;
  int64_t step_ = 0, position_ = 0, copied_step_ = -1, saved_step_ = -1;
  RunStart start_;                         // without its tensors once they are restored
  bool saving_ = false;                    // some rank may not know that the last copy is written
  bool has_carried_ = false;               // the net has carried rows
  std::vector<std::string> files_of_all_;  // sharded: each rank writes a shard of them
  std::optional<CheckpointFolders> folders_;  // if several ranks write
  Buffer copy_;                               // by Model::CopyState
  std::optional<CheckpointShards> shards_;    // of the last Save
  std::optional<CheckpointStore> checkpoints_;
  // On rank 0 alone:
  FolderLock lock_;  // on options_.out
  std::unique_ptr<MetricsLog> log_;
  bool tell_ = false;             // report the end of writing
  std::future<Written> writing_;  // last: its destructor waits for the thread, which uses the rest
};

}  // namespace gyre
