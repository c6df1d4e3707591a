#include "engine/training/model/weights.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/checkpoint/checkpoint.h"

namespace gyre {
namespace {

constexpr char kFitPrefix[] = "gyre.fit.";  // of a key of metadata.  A text's name follows

Fit FitOfMetadata(const std::map<std::string, std::string>& metadata) {
  Fit fit;
  for (const auto& [key, text] : metadata) {
    absl::string_view name = key;
    if (absl::ConsumePrefix(&name, kFitPrefix)) fit.emplace(std::string(name), text);
  }
  return fit;
}

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
    Fit fit = FitOfMetadata(tensors->metadata());
    return Weights{where, *std::move(tensors), std::move(fit)};
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

Fit ReadFit(const std::string& where) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(where, ignored)) {
    const auto tensors = TensorFile::Read(where);
    return tensors.ok() ? FitOfMetadata(tensors->metadata()) : Fit();
  }
  std::vector<std::string> folders = {where};
  const CheckpointStore store(where + "/checkpoints");
  if (const auto names = store.Names(); names.ok()) {
    for (const std::string& name : *names) folders.push_back(store.folder() + "/" + name);
  }
  for (const std::string& folder : folders) {
    if (const auto state = StateOf(folder); state.ok()) return FitOf(*state);
  }
  return {};
}

std::map<std::string, std::string> MetadataOf(const Fit& fit) {
  std::map<std::string, std::string> metadata;
  for (const auto& [name, text] : fit) metadata[kFitPrefix + name] = text;
  return metadata;
}

}  // namespace gyre
