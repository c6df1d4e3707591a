#include "engine/data/sets/picture_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/data/files/text_file.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& Endings() {
  static const std::vector<std::string> endings = {".jpg", ".jpeg", ".png", ".webp", ".bmp",
                                                   ".tif", ".tiff", ".jp2", ".ppm",  ".pgm"};
  return endings;
}

bool IsHidden(const std::string& path) {
  return fs::path(path).filename().string().starts_with('.');
}

// The classes in order, and each picture's number among them.  `seen` has provisional numbers.
void NumberClasses(const std::map<std::string, int32_t, std::less<>>& seen, PictureIndex& index) {
  std::vector<float> numbers(seen.size());
  for (const auto& [name, provisional] : seen) {
    numbers[static_cast<size_t>(provisional)] = static_cast<float>(index.classes.size());
    index.classes.push_back(name);
  }
  for (float& number : index.numbers) number = numbers[static_cast<size_t>(number)];
}

// Files that a list names and that are not there.
class MissingFiles {
 public:
  void Look(const std::string& path, int64_t line) {
    struct stat found;
    if (stat(path.c_str(), &found) == 0) return;
    if (++count_ <= kTold) told_.push_back(absl::StrCat("line ", line, ": ", path));
  }
  absl::Status status(const std::string& list) const {
    if (count_ == 0) return absl::OkStatus();
    return absl::NotFoundError(absl::StrFormat(
        "%s: %d of its files %s not there: %s%s", list, count_, count_ == 1 ? "is" : "are",
        absl::StrJoin(told_, ", "), count_ > kTold ? ", ..." : ""));
  }

 private:
  static constexpr int64_t kTold = 5;
  int64_t count_ = 0;
  std::vector<std::string> told_;
};

}  // namespace

std::string PictureIndex::PathOf(int64_t picture) const {
  return (fs::path(folder) / paths[picture]).string();
}

absl::StatusOr<PictureIndex> ReadPictureFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(Listing classes, List(folder, {}));
  std::erase_if(classes.paths, IsHidden);
  if (classes.paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": no folder in it; expected one for each class, with the class's pictures"));
  }
  PictureIndex index{.folder = folder};
  std::vector<std::string> others = classes.others;
  for (const std::string& path : classes.paths) {
    const std::string name = fs::path(path).filename().string();
    RETURN_IF_ERROR(CheckClassName(path, name));
    ASSIGN_OR_RETURN(Listing pictures, List(path, Endings()));
    std::ranges::copy_if(pictures.paths, std::back_inserter(others), IsHidden);
    std::erase_if(pictures.paths, IsHidden);
    if (pictures.paths.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path,
                       ": no picture in this class; remove the folder, or add files that end "
                       "with ",
                       absl::StrJoin(Endings(), ", ")));
    }
    for (const std::string& picture : pictures.paths) {
      index.paths.Add(absl::StrCat(name, "/", fs::path(picture).filename().string()));
      index.numbers.push_back(static_cast<float>(index.classes.size()));
    }
    others.insert(others.end(), pictures.others.begin(), pictures.others.end());
    index.classes.push_back(name);
  }
  index.note = LeftOutOf(folder, others, "CLASS/NAME of a picture");
  return index;
}

absl::StatusOr<PictureIndex> ReadPictureList(const std::string& list, PictureLabels labels,
                                             int64_t count) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(list));
  PictureIndex index{.folder = fs::path(list).parent_path().string()};
  std::map<std::string, int32_t, std::less<>> classes;
  MissingFiles missing;
  const auto read = [&](int64_t number, std::string_view read) -> absl::Status {
    const absl::string_view line(read.data(), read.size());
    if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
    const std::vector<std::string> columns = absl::StrSplit(line, '\t');
    const auto invalid = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat(list, ":", number, ": ", what));
    };
    if (static_cast<int64_t>(columns.size()) != count + 1 || columns[0].empty()) {
      return invalid(absl::StrFormat(
          "expected PATH%s, got %d columns; a TAB divides columns",
          count == 1 ? " TAB LABEL" : absl::StrCat(" and ", count, " labels"), columns.size()));
    }
    index.paths.Add(columns[0]);
    missing.Look(index.PathOf(index.paths.size() - 1), number);
    for (int64_t i = 1; i <= count; ++i) {
      const std::string& label = columns[static_cast<size_t>(i)];
      if (labels == PictureLabels::kMask) {
        index.masks.Add(label);
        missing.Look((fs::path(index.folder) / label).string(), number);
      } else if (labels == PictureLabels::kClass) {
        if (label.empty()) return invalid("a label is empty");
        const auto next = static_cast<int32_t>(classes.size());
        index.numbers.push_back(static_cast<float>(classes.try_emplace(label, next).first->second));
      } else {
        float value = 0;
        if (!absl::SimpleAtof(label, &value) || !std::isfinite(value)) {
          return invalid(absl::StrCat("expected a number, got \"", label, "\""));
        }
        index.numbers.push_back(value);
      }
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachLine(text, read));
  if (index.paths.size() == 0) return absl::InvalidArgumentError(list + ": no picture in it");
  RETURN_IF_ERROR(missing.status(list));
  if (labels == PictureLabels::kClass) NumberClasses(classes, index);
  return index;
}

}  // namespace gyre
