#include "engine/training/model/weights.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/step_scalars.h"

namespace gyre {
namespace {

// Keys of metadata.  A fit's is followed by the name of a text.
constexpr char kFitPrefix[] = "gyre.fit.", kNet[] = "gyre.net", kTrainer[] = "gyre.trainer";

Fit FitOfMetadata(const std::map<std::string, std::string>& metadata) {
  Fit fit;
  for (const auto& [key, text] : metadata) {
    absl::string_view name = key;
    if (absl::ConsumePrefix(&name, kFitPrefix)) fit.emplace(std::string(name), text);
  }
  return fit;
}

RunTexts TextsOfMetadata(const std::map<std::string, std::string>& metadata) {
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? "" : found->second;
  };
  return {text(kNet), text(kTrainer), ""};
}

absl::StatusOr<Weights> Of(Checkpoint checkpoint, WeightsKind kind) {
  const CheckpointState& state = checkpoint.state;
  const bool averages = state.averages() && kind == WeightsKind::kAverages;
  TensorFile read;
  const auto find = [&](const std::string& name) -> absl::StatusOr<const Tensor*> {
    ASSIGN_OR_RETURN(read, checkpoint.optimizer.Read({&name, 1}));
    return read.Find(name);
  };
  if (averages) {
    RETURN_IF_ERROR(Annotate(TakeAverages(checkpoint.weights.tensors(), find), checkpoint.path));
  }
  return Weights{.path = checkpoint.path,
                 .tensors = std::move(checkpoint.weights),
                 .fit = FitOf(state),
                 .texts = {state.net(), state.trainer(), state.trainer_file()},
                 .averages = averages};
}

}  // namespace

absl::StatusOr<Weights> ReadWeights(const std::string& where, const std::string& named_by,
                                    WeightsKind kind) {
  if (where.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(named_by, " is missing; see --help"));
  }
  const auto of_where = [&](const absl::Status& status) {
    return named_by.empty() ? status : Annotate(status, named_by);
  };
  std::error_code ignored;
  if (!std::filesystem::is_directory(where, ignored)) {
    if (absl::EndsWithIgnoreCase(where, ".onnx")) {
      return of_where(absl::InvalidArgumentError(
          absl::StrCat(where,
                       ": is an ONNX model, which Gyre writes and does not read; give the run or "
                       "the .gyre that it was made of")));
    }
    auto tensors = TensorFile::Read(where);
    if (!tensors.ok()) return of_where(tensors.status());
    Fit fit = FitOfMetadata(tensors->metadata());
    RunTexts texts = TextsOfMetadata(tensors->metadata());
    return Weights{where, *std::move(tensors), std::move(fit), std::move(texts)};
  }
  const CheckpointNeed need =
      kind == WeightsKind::kLast ? CheckpointNeed::kWeights : CheckpointNeed::kAverages;
  const std::string checkpoints = where + "/checkpoints";
  if (!std::filesystem::is_directory(checkpoints, ignored)) {
    if (!std::filesystem::exists(where + "/state.pb", ignored)) {
      return of_where(absl::NotFoundError(absl::StrCat(
          where,
          " holds neither checkpoints nor a checkpoint's state.pb; "
          "give a run's folder, a checkpoint's folder, or a safetensors or npz file")));
    }
    ASSIGN_OR_RETURN(Checkpoint checkpoint, LoadCheckpoint(where, need));
    return Of(std::move(checkpoint), kind);
  }
  std::vector<std::string> skipped;
  auto checkpoint = CheckpointStore(checkpoints).LoadLatest(&skipped, need);
  RETURN_IF_ERROR(checkpoint.status());
  ASSIGN_OR_RETURN(Weights weights, Of(*std::move(checkpoint), kind));
  for (const std::string& line : skipped) {
    weights.warnings.push_back(absl::StrCat("skipped ", line));
  }
  return weights;
}

absl::Status TakeAverages(std::span<const NamedTensor> values, const FindTensor& find) {
  for (const auto& [name, value] : values) {
    const auto of = [&name = name](absl::string_view slice) {
      return absl::StrCat(name, slice, ".", kAverageSlot);
    };
    ASSIGN_OR_RETURN(const Tensor* average, find(of("")));
    const bool whole = average != nullptr;
    if (!whole) {
      ASSIGN_OR_RETURN(average, find(of("/0")));
    }
    if (average == nullptr) continue;  // it is not trained
    auto* const to = static_cast<std::byte*>(value.data);
    size_t at = 0;
    for (int slice = 1; average != nullptr; ++slice) {
      if (average->dtype != value.dtype || average->bytes() > value.bytes() - at) break;
      std::copy_n(static_cast<const std::byte*>(average->data), average->bytes(), to + at);
      at += average->bytes();
      if (whole) break;
      ASSIGN_OR_RETURN(average, find(of(absl::StrCat("/", slice))));
    }
    if (at == value.bytes()) continue;
    return absl::DataLossError(absl::StrFormat(
        "expected averages of the %d bytes of \"%s\", got other tensors", value.bytes(), name));
  }
  return absl::OkStatus();
}

Fit ReadFit(const std::string& where) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(where, ignored)) {
    const auto tensors = TensorFile::Read(where);
    return tensors.ok() ? FitOfMetadata(tensors->metadata()) : Fit();
  }
  if (const auto own = StateOf(where); own.ok()) return FitOf(*own);
  const std::optional<CheckpointState> state = NewestStateOf(where + "/checkpoints");
  return state ? FitOf(*state) : Fit();
}

std::map<std::string, std::string> MetadataOf(const Weights& weights) {
  std::map<std::string, std::string> metadata;
  for (const auto& [name, text] : weights.fit) metadata[kFitPrefix + name] = text;
  if (!weights.texts.net.empty()) metadata[kNet] = weights.texts.net;
  if (!weights.texts.trainer.empty()) metadata[kTrainer] = weights.texts.trainer;
  return metadata;
}

}  // namespace gyre
