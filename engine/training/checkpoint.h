// checkpoint.h: everything a run needs to go on, in one folder that is whole or absent.
//
//   checkpoints/step_00000200/weights.safetensors    parameters and buffers, canonical layout
//                             optimizer.safetensors  its slots, canonical layout
//                             state.pb               CheckpointFile: the rest, and checksums of all
//
// One rank writes.  Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "engine/data/tensor_file.h"
#include "engine/training/checkpoint.pb.h"

namespace gyre {

struct Checkpoint {
  std::string path;  // the folder
  CheckpointState state;
  TensorFile weights, optimizer;
};

class CheckpointStore {
 public:
  // `folder` holds the step_ folders; it need not exist.
  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}

  // Makes the folder and writes and removes a small file.  Errors: PermissionDenied and the like,
  // naming the path.
  absl::Status ProbeWritable();

  // Writes step_N.
  absl::Status Save(const CheckpointState& state, std::span<const NamedTensor> weights,
                    std::span<const NamedTensor> optimizer);

  // Deletes what is older than step_N, beyond the newest `keep` >= 1 up to it.  An error here harms
  // none that is kept.
  absl::Status DeleteOlder(int64_t step, int64_t keep);

  // The step of the newest checkpoint, whole or broken; -1 if there is none.
  absl::StatusOr<int64_t> NewestStep() const;

  // The newest whole checkpoint.  Broken ones are skipped, each with a line in *skipped saying
  // which file and why, unless it is null.  Errors: NotFound if there is none at all; DataLoss if
  // all are broken.
  absl::StatusOr<Checkpoint> LoadLatest(std::vector<std::string>* skipped) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// Loads one checkpoint folder.  Errors: NotFound; DataLoss naming the file whose checksum differs,
// or whose numbers no run can have.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path);

}  // namespace gyre
