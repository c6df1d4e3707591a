#include "engine/training/feed/sent_list.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// How many folders above its own a path begins, -1 if a copy would not find it.
int64_t Climb(const fs::path& path) {
  int64_t up = 0;
  bool down = false;
  for (const fs::path& part : path) {
    if (part == "..") {
      ++up;
      if (down) return -1;
    } else if (part != ".") {
      down = true;
    }
  }
  return path.is_absolute() ? -1 : up;
}

}  // namespace

absl::StatusOr<SentList> PlaceList(const std::string& list, bool masks) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(list));
  std::set<std::string, std::less<>> paths;
  int64_t most = 0;
  const auto read = [&](int64_t number, std::string_view line) -> absl::Status {
    for (int column = 0; column < (masks ? 2 : 1) && !line.empty(); ++column) {
      const std::string_view path = line.substr(0, line.find('\t'));
      line.remove_prefix(std::min(line.size(), path.size() + 1));
      const int64_t climb = Climb(path);
      if (climb < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(list, ":", number,
                         ": --send_data expects paths relative to the list, with \"..\" at most in "
                         "front, got ",
                         std::string(path)));
      }
      most = std::max(most, climb);
      if (path.find_first_not_of(" \t") != std::string_view::npos) paths.emplace(path);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachLine(text, read));
  fs::path folder;
  for (int64_t i = 0; i < most; ++i) folder /= "list";
  SentList sent{.list = (folder / fs::path(list).filename()).string()};
  const fs::path beside = fs::path(list).parent_path();
  for (const std::string& path : paths) {
    sent.files.push_back(
        {.from = (beside / path).string(), .to = (folder / path).lexically_normal().string()});
  }
  // One file by several names, such as a.png and ./a.png.
  std::ranges::sort(sent.files, {}, &SentList::ListedFile::to);
  const auto same = std::ranges::unique(sent.files, {}, &SentList::ListedFile::to);
  sent.files.erase(same.begin(), same.end());
  return sent;
}

}  // namespace gyre
