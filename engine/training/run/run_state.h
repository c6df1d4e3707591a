// run_state.h: a training run besides its nets: how far it has come, and the folder that keeps it.
// Restored from what it starts from (run_start.h); saved as a checkpoint, which a thread of its own
// writes from a copy while training goes on.
//
// Every rank has one and makes the same calls; rank 0 alone speaks.  It writes the checkpoints,
// too, but for what each rank has a part of (CheckpointShards); where ranks have folders of their
// own (CheckpointFolders), what each writes is kept by another as well.  Calls from one thread.
#pragma once

#include <atomic>
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
#include "engine/training/checkpoint/checkpoint_copies.h"
#include "engine/training/checkpoint/checkpoint_folders.h"
#include "engine/training/checkpoint/checkpoint_shards.h"
#include "engine/training/model/model.h"
#include "engine/training/run/run_log.h"
#include "engine/training/run/run_start.h"

namespace gyre {

class RunState {
 public:
  // config and communication must outlive it.
  RunState(const TrainerConfig& config, const TrainingOptions& options, ProcessGroup& communication)
      : config_(config), options_(options), communication_(communication) {}
  ~RunState() {
    if (parts_) parts_->GiveUp();
    RemoveReceived().IgnoreError();
  }

  int64_t step() const { return step_; }                // steps started
  int64_t position() const { return position_; }        // samples consumed
  int64_t copied_step() const { return copied_step_; }  // of the last Save; -1: none
  int64_t saved_step() const { return saved_step_; }    // that is known to be written; -1: none
  const std::string& out() const { return options_.out; }
  // A step more has been started.
  void Advance();
  // Of the last step finished, or restored; none: it is not dynamic, or a run begins.
  std::optional<LossScaleState> loss_scale;

  // First of all: finds what the run starts from and checks it against the plan, so that `step` and
  // `position` are known.  Errors: those of FindStart.
  absl::Status FindStart(const ModelPlan& plan);
  const RunStart& start() const { return start_; }
  // Gives the model its weights and the optimizer's state, the same on all ranks.
  absl::Status Restore(Model& model, Stream& stream);
  // Last before training, so that a run which cannot begin leaves no folder behind; after Restore.
  // test_again: the step restored is about to be tested (again).  total_steps: of the run.  Errors
  // of ranks that are to write, too.
  absl::Status OpenOutput(bool test_again, int64_t total_steps);
  // Begins a checkpoint of the steps started, which must be finished, once that before is written.
  // The model must live until it is; it may change.  tell: people want to know when.
  absl::Status Save(const Model& model, Stream& stream, bool tell);
  // What Save has begun is there on all ranks' return, however long it takes.  Errors of writing
  // are those of the rank that has them.
  absl::Status FinishSaving();
  // The same where several ranks write, ahead of a time in which no step tells of their parts.
  absl::Status SettleParts() { return files_of_all_.empty() ? absl::OkStatus() : FinishSaving(); }
  // What went wrong with it on this rank, if it has done its part by now.  Never blocks.
  absl::Status CheckSaving();
  // Likewise, once it has.  The other ranks are not told; nor are they waited for, but for a
  // moment: where they have not written theirs by then, the checkpoint is given up.
  absl::Status AwaitSaving();
  // What ranks tell each other of what Save has begun, to be summed over ranks now and then: after
  // the numbers that are there.
  void AppendTo(std::vector<double>& numbers);
  // The sums of what was appended.  Once all parts are written, may submit their way to others.
  void Take(std::span<const double> sums);

  // What the log holds to the disk.  Errors: those of RunLog::Sync.
  absl::Status Flush() { return log_ ? log_->Sync() : absl::OkStatus(); }
  RunLog* log() { return log_.get(); }  // null on all ranks but 0
  // Lines for people; rank 0's.
  void Say(const std::string& lines) const;
  void Warn(const std::string& text) const;

 private:
  // A checkpoint to go on from that has been sent here, where this rank keeps none.
  absl::Status RemoveReceived();
  struct Written {
    absl::Status status, deleted;
    bool published = false;  // the checkpoint is there
  };
  CheckpointState State() const;
  // Both on a thread of its own.
  Written Write(const Model& model, const CheckpointState& state);
  absl::Status WriteAndPublish(const Model& model, const CheckpointState& state, bool* published);
  // On the leader's: the crc32s of what each rank writes, once all of them have.
  absl::StatusOr<std::map<std::string, uint32_t>> AwaitParts(int64_t step);
  // Where folders are several: keeps what others have written, and publishes.
  absl::Status PublishCopied(const CheckpointState& state, bool* published);
  // Blocks until `holds` says so, to which it gives a time to wait.  Aborted: the run has failed.
  absl::Status AwaitOthers(int64_t step,
                           const std::function<bool(std::chrono::milliseconds)>& holds);
  // Of "weights.safetensors" or what PartName takes, that which a rank writes; "": nothing.
  std::string NameOf(const std::string& file, int rank) const;
  // By rank, what each writes; nothing if the leader does everything.
  std::vector<std::vector<std::string>> FilesOfRanks() const;
  absl::Status OpenOutputOfLeader(bool test_again);
  absl::Status MeetWriters();
  bool leader() const { return communication_.rank() == 0; }

  const TrainerConfig& config_;
  const TrainingOptions options_;
  ProcessGroup& communication_;
  int64_t total_steps_ = 0;
  int64_t step_ = 0, position_ = 0, copied_step_ = -1, saved_step_ = -1;
  RunStart start_;                         // without its tensors, once they are restored
  bool saving_ = false;                    // not all ranks know yet that the last copy is written
  bool has_carried_ = false;               // the net carries rows from step to step
  std::vector<std::string> files_of_all_;  // of which each rank writes a part
  std::optional<CheckpointFolders> folders_;  // where several ranks write
  Buffer copy_;                               // by Model::CopyState
  std::optional<CheckpointShards> parts_;     // of the last Save
  std::optional<CheckpointCopies> copies_;    // likewise, if folders are several
  std::optional<CheckpointStore> checkpoints_;
  // Of the leader:
  FolderLock lock_;  // of options_.out
  std::unique_ptr<RunLog> log_;
  bool tell_ = false;             // people, once it is written
  std::future<Written> writing_;  // last: its end waits for the thread, which uses all of this
};

}  // namespace gyre
