// checkpoint.h: everything a run needs to resume, in one folder that is whole or absent.
//
//   checkpoints/step_00000200/weights.safetensors    parameters and buffers, canonical layout
//                             optimizer.safetensors  optimizer slots, canonical layout
//                             carried.safetensors    carried rows, if the net has any
//                             state.pb               CheckpointFile: the rest, and all checksums
//
// Several ranks may each write a shard of the optimizer and carried files, such as
// optimizer-00001-of-00004.safetensors.  Readers do not depend on which shard holds a tensor.
// If ranks have folders of their own, each file is in one or two of them (checkpoint_folders.h).
// Each of these folders has the whole state.pb.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/sets/fit.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/training/checkpoint/checkpoint.pb.h"

namespace gyre {

inline constexpr char kStateFile[] = "state.pb";
inline constexpr char kWeightsFile[] = "weights.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer", kCarriedFile[] = "carried";  // for ShardName

// The name of shard `part` of `parts`, which is "optimizer.safetensors" for a single shard.
std::string ShardName(const std::string& file, int part, int parts);

struct Checkpoint {
  std::string path;  // the folder
  CheckpointState state;
  TensorFile weights;
  TensorFiles optimizer, carried;  // read on demand: the files must stay on disk
};

// The files of a checkpoint that are read and must be whole.
enum class CheckpointNeed : uint8_t {
  kAll,       // a run that resumes also needs the optimizer and the carried rows
  kWeights,   // the weights alone
  kAverages,  // the weights and, with state.averages, the optimizer's first file
};

// The vocabulary and the like that the data derived from their training samples.
inline Fit FitOf(const CheckpointState& state) { return {state.fit().begin(), state.fit().end()}; }

class CheckpointStore {
 public:
  //   folder  the parent of the step_ folders; it need not exist
  //   token   the same for all writers of a checkpoint, unique to the run; "" for a sole writer
  explicit CheckpointStore(std::string folder, std::string token = "");

  // Makes it and those above it.  Errors, as of ProbeWritable: PermissionDenied and the like,
  // naming the path.
  absl::Status MakeFolder();
  // The errors of MakeFolder that can be found without creating anything.
  absl::Status CheckMakeable() const;
  // Makes the folder, then writes and removes a small file.  Precondition: no concurrent call.
  absl::Status ProbeWritable();

  // Writes a file of step_N, hidden until Publish, and returns its CRC-32.  Any number of writers.
  absl::StatusOr<uint32_t> Write(int64_t step, const std::string& name,
                                 std::span<const NamedTensor> tensors);
  // The CRC-32 of each named file of step_N, or an empty map until all of them are written.
  absl::StatusOr<std::map<std::string, uint32_t>> Written(
      int64_t step, const std::vector<std::string>& names) const;
  // Publishes step_N with these files.  One writer calls it, once all files are written.
  // Errors: FailedPrecondition for a missing file.
  absl::Status Publish(const CheckpointState& state,
                       const std::map<std::string, uint32_t>& crc32_of_file);
  // The two halves of Publish, for a folder that need not have all files.
  absl::Status WriteState(const CheckpointState& state,
                          const std::map<std::string, uint32_t>& crc32_of_file);
  absl::Status PublishWritten(int64_t step);
  // Append to `bytes` a written file of step_N, and write a file from another folder.
  // Errors: DataLoss if the bytes do not have this CRC-32.
  absl::Status AppendWritten(int64_t step, const std::string& name, std::string& bytes) const;
  absl::Status WriteCopy(int64_t step, const std::string& name, std::string_view bytes,
                         uint32_t crc32);
  // Removes the unpublished files of step_N.
  void Discard(int64_t step);

  // Deletes the checkpoints up to step_N but the newest `keep` >= 1, which no error harms.
  absl::Status DeleteOlder(int64_t step, int64_t keep);

  // Folders' names, whole or broken, newest first.
  absl::StatusOr<std::vector<std::string>> Names() const;
  // The step of the newest checkpoint, whole or broken, or -1.
  absl::StatusOr<int64_t> NewestStep() const;

  // The newest checkpoint whose needed files are whole.  Appends to *skipped, unless null, a line
  // with file and reason for each broken one.
  // Errors: NotFound if there is none, DataLoss if all are broken.
  absl::StatusOr<Checkpoint> LoadLatest(std::vector<std::string>* skipped,
                                        CheckpointNeed need = CheckpointNeed::kAll) const;

  const std::string& folder() const { return folder_; }
  std::string PathOf(int64_t step) const;  // of step_N

 private:
  std::string folder_, token_;
};

// The CRC-32 of each other file, as state.pb in this checkpoint folder states it.
// Errors: DataLoss naming state.pb, or the folder if step_N holds another step.
absl::StatusOr<std::map<std::string, uint32_t>> ChecksumsOf(const std::string& path);
// The state of a checkpoint, whatever its other files hold.  Errors: as of ChecksumsOf.
absl::StatusOr<CheckpointState> StateOf(const std::string& path);
// That of the newest checkpoint in the folder whose state can be read.
std::optional<CheckpointState> NewestStateOf(const std::string& folder);
// Checks one file of a checkpoint.  Compares the length with the header before it computes the
// checksum, so that a sparse file costs no time.
// Errors: DataLoss, naming the file, for a missing file, a non-file, a wrong length or checksum.
absl::Status CheckFile(const std::string& path, uint32_t crc32);

// Errors: NotFound, and DataLoss naming a file with a wrong checksum or impossible numbers, or the
// folder if step_N holds another step.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path,
                                          CheckpointNeed need = CheckpointNeed::kAll);

// Advice for an error about a `given` folder that is no checkpoint.  Lists the checkpoints in or
// beside it, or else the accepted arguments.
std::string OtherCheckpoints(const std::string& given);

}  // namespace gyre
