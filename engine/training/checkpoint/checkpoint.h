// checkpoint.h: everything a run needs to go on, in one folder that is whole or absent.
//
//   checkpoints/step_00000200/weights.safetensors    parameters and buffers, canonical layout
//                             optimizer.safetensors  its slots, canonical layout
//                             carried.safetensors    rows that the last batch left, if any
//                             state.pb               CheckpointFile: the rest, and checksums of all
//
// Several ranks may each write a part of the last two, optimizer-00001-of-00004.safetensors.  Which
// tensors are in which part means nothing to who reads them.  Where ranks have folders of their
// own, the files are shared out among these, some in two of them (checkpoint_folders.h), and each
// has the whole state.pb.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/data/sets/fit.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/training/checkpoint/checkpoint.pb.h"

namespace gyre {

inline constexpr char kStateFile[] = "state.pb";
inline constexpr char kWeightsFile[] = "weights.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer", kCarriedFile[] = "carried";  // for PartName

// Of part `part` < parts: "optimizer.safetensors" if it is the only one.
std::string PartName(const std::string& file, int part, int parts);

struct Checkpoint {
  std::string path;  // the folder
  CheckpointState state;
  TensorFile weights;
  TensorFiles optimizer, carried;  // what is read while they live must stay on the disk
};

// What of a checkpoint is read, and must be whole: the files of the optimizer and of what is
// carried matter to a run that goes on alone.
enum class CheckpointNeed : uint8_t { kAll, kWeights };

// What the run's data took from their training samples.
inline Fit FitOf(const CheckpointState& state) { return {state.fit_name(), state.fit_text()}; }

class CheckpointStore {
 public:
  // `folder` holds the step_ folders; it need not exist.  All who write files of one checkpoint
  // give the same `token`, other runs another; "": nobody else writes.
  explicit CheckpointStore(std::string folder, std::string token = "");

  // Errors: PermissionDenied and the like, naming the path.
  absl::Status MakeFolder();
  // MakeFolder's errors, as far as they show without making anything.
  absl::Status CheckMakeable() const;
  // Makes the folder and writes and removes a small file.  Precondition: nobody else does.  Errors:
  // as MakeFolder's.
  absl::Status ProbeWritable();
  // Removes what dead writers left.  Precondition: nobody is writing.
  void RemoveTemporaries();
  // By a mark that each of several writers leaves, another sees that its files will be here, too.
  // Errors: as MakeFolder's.
  absl::Status LeaveMark(int writer);
  bool SeesMark(int writer) const;
  void RemoveMark(int writer);

  // Any number of writers: a file of step_N, which nobody reads before Publish.  Its crc32.
  absl::StatusOr<uint32_t> Write(int64_t step, const std::string& name,
                                 std::span<const NamedTensor> tensors);
  // The crc32s of these files of step_N, by name, once all of them are written; until then nothing.
  absl::StatusOr<std::map<std::string, uint32_t>> Written(
      int64_t step, const std::vector<std::string>& names) const;
  // One of them, when all files are written: step_N is there, with these.  Errors:
  // FailedPrecondition for one that is not there.
  absl::Status Publish(const CheckpointState& state,
                       const std::map<std::string, uint32_t>& crc32_of_file);
  // The two halves of it, for a folder that need not have all files.
  absl::Status WriteState(const CheckpointState& state,
                          const std::map<std::string, uint32_t>& crc32_of_file);
  absl::Status PublishWritten(int64_t step);
  // A written file of step_N, as it is, and one that another folder has: its crc32 is checked.
  absl::Status AppendWritten(int64_t step, const std::string& name, std::string& bytes) const;
  absl::Status WriteCopy(int64_t step, const std::string& name, std::string_view bytes,
                         uint32_t crc32);
  // Or: what was written of step_N goes.
  void Discard(int64_t step);

  // Deletes what is older than step_N, beyond the newest `keep` >= 1 up to it.  An error here harms
  // none that is kept.
  absl::Status DeleteOlder(int64_t step, int64_t keep);

  // The names of the checkpoints' folders, whole or broken, newest first.
  absl::StatusOr<std::vector<std::string>> Names() const;
  // The step of the newest checkpoint, whole or broken; -1 if there is none.
  absl::StatusOr<int64_t> NewestStep() const;

  // The newest checkpoint whose needed files are whole.  Broken ones are skipped, each with a line
  // in *skipped saying which file and why, unless it is null.  Errors: NotFound if there is none at
  // all; DataLoss if all are broken.
  absl::StatusOr<Checkpoint> LoadLatest(std::vector<std::string>* skipped,
                                        CheckpointNeed need = CheckpointNeed::kAll) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string PathOf(int64_t step) const;
  std::string MarkOf(int writer) const;

  std::string folder_, token_;
};

// What the state.pb of a checkpoint's folder says of its other files.  Errors: DataLoss naming it,
// or the folder if step_N holds another step.
absl::StatusOr<std::map<std::string, uint32_t>> ChecksumsOf(const std::string& path);
// DataLoss, naming the file, if it is not there, is no file, has another length than its header
// states, or another checksum.  In this order, so that a sparse file costs no time.
absl::Status CheckFile(const std::string& path, uint32_t crc32);

// Loads one checkpoint folder.  Errors: NotFound; DataLoss naming the file whose checksum differs,
// or whose numbers no run can have, or the folder if step_N holds another step.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path,
                                          CheckpointNeed need = CheckpointNeed::kAll);

// For the error of a `given` folder that is no checkpoint: those in it, if it is a run's, or beside
// it; else what may be given.
std::string OtherCheckpoints(const std::string& given);

}  // namespace gyre
