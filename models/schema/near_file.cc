#include "models/schema/near_file.h"

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// Of a folder; what it costs to look there is then nothing beside the start of a program.
constexpr size_t kMostEntries = 1000;
// A data set's files differ by more: train-images and train-labels.
constexpr size_t kMostEdits = 2;

std::vector<std::string> Entries(const fs::path& folder, bool hidden) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end;
       !error && entry != end && names.size() < kMostEntries; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (hidden || !name.starts_with('.')) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::string NearPath(const std::string& path) {
  std::error_code ignored;
  fs::path there, rest;
  std::string missing;
  for (const fs::path& part : fs::path(path)) {
    if (!missing.empty()) {
      rest /= part;
    } else if (fs::exists(there / part, ignored)) {
      there /= part;
    } else {
      missing = part.string();
    }
  }
  const std::string near = DidYouMean(
      missing, Entries(there.empty() ? "." : there, missing.starts_with('.')), kMostEdits);
  if (near.empty()) return "";
  there /= near;
  const bool whole = !rest.empty() && fs::exists(there / rest, ignored);
  return (whole ? there / rest : there).string();
}

absl::Status WithNearFile(const absl::Status& status, const std::string& path) {
  if (!absl::IsNotFound(status)) return status;
  const std::string near = NearPath(path);
  if (near.empty()) return status;
  return absl::NotFoundError(absl::StrCat(status.message(), "; did you mean ", near, "?"));
}

}  // namespace gyre
