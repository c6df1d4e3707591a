#include "engine/data/sets/picture_index.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/data/files/file_reader.h"
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

bool IsBlank(std::string_view line) {
  return absl::StripAsciiWhitespace({line.data(), line.size()}).empty();
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

// Calls `name` for each regular file of a folder, at most for so many entries.
void ForEachFile(const std::string& folder, size_t most,
                 absl::FunctionRef<void(std::string_view)> name) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  for (const dirent* entry = nullptr; most > 0 && (entry = readdir(entries)) != nullptr; --most) {
    if (entry->d_type == DT_REG) name(entry->d_name);
  }
  closedir(entries);
}

// The numbers of paths, relative to `folder`, of files that are not there.  Many of one folder are
// found by listing it once: a stat of each takes several times as long, and far more from a disk.
std::vector<int64_t> MissingOf(const std::string& folder, const StringList& paths) {
  constexpr size_t kListed = 32;  // as many files of one folder
  constexpr size_t kMost = 16;    // entries looked at for each of them
  const auto folder_of = [&](int64_t i) { return paths[i].substr(0, paths[i].rfind('/') + 1); };
  std::unordered_map<std::string_view, std::vector<int64_t>> folders;
  for (int64_t i = 0; i < paths.size(); ++i) folders[folder_of(i)].push_back(i);
  std::vector<int64_t> missing;
  for (auto& [of, files] : folders) {
    std::vector<bool> found(files.size());
    if (files.size() >= kListed) {
      const auto name_of = [&paths, from = of.size()](int64_t i) { return paths[i].substr(from); };
      std::ranges::sort(files, {}, name_of);
      ForEachFile((fs::path(folder) / of / ".").string(), kMost * files.size(),
                  [&](std::string_view name) {
                    const auto same = std::ranges::equal_range(files, name, {}, name_of);
                    std::fill_n(found.begin() + (same.begin() - files.begin()), same.size(), true);
                  });
    }
    for (size_t i = 0; i < files.size(); ++i) {
      struct stat ignored;
      if (found[i]) continue;
      const std::string path = (fs::path(folder) / paths[files[i]]).string();
      if (stat(path.c_str(), &ignored) != 0) missing.push_back(files[i]);
    }
  }
  return missing;
}

// Errors: NotFound if files of a list, which is `text`, are missing.
absl::Status CheckFiles(const std::string& list, std::string_view text, const PictureIndex& index) {
  std::vector<std::pair<int64_t, std::string_view>> missing;  // by sample
  for (const StringList* paths : {&index.paths, &index.masks}) {
    for (const int64_t i : MissingOf(index.folder, *paths)) missing.emplace_back(i, (*paths)[i]);
  }
  if (missing.empty()) return absl::OkStatus();
  std::ranges::stable_sort(missing, {}, &std::pair<int64_t, std::string_view>::first);
  constexpr size_t kTold = 5;
  std::vector<std::string> told;
  int64_t sample = -1;
  const auto tell = [&](int64_t line, std::string_view content) {
    if (!IsBlank(content)) ++sample;
    while (told.size() < std::min(kTold, missing.size()) && missing[told.size()].first == sample) {
      const std::string path = (fs::path(index.folder) / missing[told.size()].second).string();
      told.push_back(absl::StrCat("line ", line, ": ", path,
                                  absl::ascii_isspace(static_cast<unsigned char>(path.back()))
                                      ? " (its name ends with a blank)"
                                      : ""));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachLine(text, tell));
  return absl::NotFoundError(absl::StrFormat("%s: %d of its files %s not there: %s%s", list,
                                             missing.size(), missing.size() == 1 ? "is" : "are",
                                             absl::StrJoin(told, ", "),
                                             missing.size() > kTold ? ", ..." : ""));
}

}  // namespace

bool IsPictureName(const std::string& path) {
  const std::string ending = absl::AsciiStrToLower(fs::path(path).extension().string());
  return std::ranges::find(Endings(), ending) != Endings().end();
}

std::string PictureIndex::PathOf(int64_t picture) const {
  return (fs::path(folder) / paths[picture]).string();
}

absl::StatusOr<PictureIndex> ReadPictureFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(Listing classes, List(folder, {}));
  std::vector<std::string> others = classes.others;
  std::ranges::copy_if(classes.paths, std::back_inserter(others), IsHidden);
  std::erase_if(classes.paths, IsHidden);
  if (classes.paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": no folder in it; expected one for each class, with the class's pictures"));
  }
  PictureIndex index{.folder = folder};
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
  std::ranges::sort(others);
  index.note =
      LeftOutOf(folder, others, "a picture CLASS/NAME, no deeper folder, pipe or broken link");
  return index;
}

bool HasOneLabel(const std::string& list) {
  constexpr size_t kMost = 1 << 16;  // bytes of a line
  auto file = FileReader::Open(list);
  if (!file.ok()) return false;
  std::string text(kMost, '\0');
  text.resize(file->Read(text.data(), text.size()).value_or(0));
  for (const absl::string_view split : absl::StrSplit(text, '\n')) {
    const std::string_view line(split.data(), split.size());
    if (!IsBlank(line)) return std::ranges::count(line, '\t') == 1;
  }
  return false;
}

absl::StatusOr<PictureIndex> ReadPictureList(const std::string& list, PictureLabels labels,
                                             int64_t count) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(list));
  PictureIndex index{.folder = fs::path(list).parent_path().string()};
  const int64_t lines = std::ranges::count(text, '\n') + 1;
  index.paths.Reserve(text.size(), lines);
  index.numbers.reserve(
      std::min(static_cast<size_t>(lines) * static_cast<size_t>(count), text.size()));
  std::map<std::string, int32_t, std::less<>> classes;
  const auto read = [&](int64_t number, std::string_view line) -> absl::Status {
    if (IsBlank(line)) return absl::OkStatus();
    const auto columns = std::ranges::count(line, '\t') + 1;
    const auto invalid = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat(list, ":", number, ": ", what));
    };
    if (line.find('\0') != line.npos) return invalid("a byte of 0; write the file as UTF-8");
    // Without labels the columns behind a path say nothing.
    const bool wrong = labels != PictureLabels::kNone && columns != count + 1;
    if (wrong || line.starts_with('\t')) {
      return invalid(absl::StrFormat("expected PATH%s, got %d column%s; a TAB divides columns",
                                     count == 0   ? ""
                                     : count == 1 ? " TAB LABEL"
                                                  : absl::StrCat(" and ", count, " labels"),
                                     columns, columns == 1 ? "" : "s"));
    }
    const auto next = [&line] {
      const std::string_view column = line.substr(0, line.find('\t'));
      line.remove_prefix(std::min(line.size(), column.size() + 1));
      return column;
    };
    index.paths.Add(next());
    for (int64_t i = 1; i <= count; ++i) {
      const std::string_view column = next();
      // An editor leaves blanks behind labels.
      const absl::string_view label =
          absl::StripAsciiWhitespace(absl::string_view(column.data(), column.size()));
      if (label.empty()) return invalid("a label is empty");
      if (labels == PictureLabels::kMask) {
        index.masks.Add(column);
      } else if (labels == PictureLabels::kClass) {
        const auto known = classes.find(std::string_view(label.data(), label.size()));
        const auto number_of_class =
            known != classes.end() ? known->second : static_cast<int32_t>(classes.size());
        if (known == classes.end()) classes.emplace(label, number_of_class);
        index.numbers.push_back(static_cast<float>(number_of_class));
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
  RETURN_IF_ERROR(CheckFiles(list, text, index));
  if (labels == PictureLabels::kClass) NumberClasses(classes, index);
  return index;
}

}  // namespace gyre
