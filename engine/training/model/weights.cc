#include "engine/training/model/weights.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/checkpoint/checkpoint.h"

namespace gyre {
namespace {

Weights Of(Checkpoint checkpoint) {
  return {checkpoint.path, std::move(checkpoint.weights), FitOf(checkpoint.state)};
}

}  // namespace

absl::StatusOr<Weights> ReadWeights(const std::string& where) {
  if (where.empty()) return absl::InvalidArgumentError("--weights is missing; see --help");
  std::error_code ignored;
  if (!std::filesystem::is_directory(where, ignored)) {
    auto tensors = TensorFile::Read(where);
    if (!tensors.ok()) return Annotate(tensors.status(), "--weights");
    return Weights{where, *std::move(tensors)};
  }
  const std::string checkpoints = where + "/checkpoints";
  if (!std::filesystem::is_directory(checkpoints, ignored)) {
    if (!std::filesystem::exists(where + "/state.pb", ignored)) {
      return absl::NotFoundError(
          absl::StrCat("--weights: ", where,
                       " holds neither checkpoints nor a checkpoint's state.pb; "
                       "give a run's folder, a checkpoint's folder, or a safetensors file"));
    }
    ASSIGN_OR_RETURN(Checkpoint checkpoint, LoadCheckpoint(where, CheckpointNeed::kWeights));
    return Of(std::move(checkpoint));
  }
  std::vector<std::string> skipped;
  auto checkpoint = CheckpointStore(checkpoints).LoadLatest(&skipped, CheckpointNeed::kWeights);
  for (const std::string& line : skipped) {
    std::fprintf(stderr, "%s\n", Wrapped("warning: ", "skipped " + line).c_str());
  }
  RETURN_IF_ERROR(checkpoint.status());
  return Of(*std::move(checkpoint));
}

}  // namespace gyre
