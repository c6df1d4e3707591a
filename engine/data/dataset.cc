#include "engine/data/dataset.h"

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/data/idx_dataset.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// `path` as seen from the folder of `config_file`; an absolute path is itself.
std::string Resolve(const std::string& path, const std::string& config_file) {
  return (std::filesystem::path(config_file).parent_path() / path).string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetConfig& config,
                                                     const NormalizationConfig& normalization,
                                                     const std::string& config_file) {
  if (!std::isfinite(normalization.mean()) || !std::isfinite(normalization.std()) ||
      normalization.std() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        config_file, ": normalization wants a finite mean and a finite, non-zero std, ",
        "got mean ", normalization.mean(), " and std ", normalization.std()));
  }
  switch (config.source_case()) {
    case DatasetConfig::kIdx:
      if (config.idx().images().empty() || config.idx().labels().empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(config_file, ": an idx data set wants both `images` and `labels`; `",
                         config.idx().images().empty() ? "images" : "labels", "` is not set"));
      }
      return OpenIdxDataset(Resolve(config.idx().images(), config_file),
                            Resolve(config.idx().labels(), config_file), normalization);
    case DatasetConfig::SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(config_file, ": a data set wants a source: idx { images: ... labels: ... }"));
}

}  // namespace gyre
