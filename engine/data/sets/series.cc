#include "engine/data/sets/series.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/check.h"
#include "models/schema/near_file.h"

namespace gyre {

namespace fs = std::filesystem;

std::string SeriesSource::Resolve(const std::string& path) const {
  const std::string there = (fs::path(folder) / path).string();
  return path_of ? path_of(path, there) : there;
}

absl::StatusOr<Fit> FitFor(const SeriesSource& source, const std::string& name,
                           const std::string& file,
                           const std::function<absl::StatusOr<std::string>()>& make) {
  Fit fit{.name = name};
  if (!file.empty()) {
    ASSIGN_OR_RETURN(fit.text, ReadText(source.Resolve(file)));
    absl::StrReplaceAll({{"\r\n", "\n"}}, &fit.text);
    if (!fit.text.empty() && !fit.text.ends_with('\n')) fit.text += '\n';  // by an editor
  } else if (source.fit.name.empty()) {
    ASSIGN_OR_RETURN(fit.text, make());
  }
  if (source.fit.name.empty()) return fit;
  if (file.empty() && source.fit.name == name) return source.fit;
  const std::string difference = DifferenceOf(source.fit, fit);
  if (difference.empty()) return fit;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is of another run than the weights: %s; leave it out, or name that of "
                      "their run",
                      file.empty() ? name : source.Resolve(file), difference));
}

absl::StatusOr<Vocabulary> ParseVocabulary(const SeriesSource& source, const Fit& fit,
                                           const std::string& file) {
  auto vocabulary = Vocabulary::Parse(fit.text);
  if (vocabulary.ok()) return vocabulary;
  return absl::Status(vocabulary.status().code(),
                      absl::StrCat(file.empty() ? fit.name : source.Resolve(file), ":",
                                   vocabulary.status().message()));
}

absl::StatusOr<Listing> List(const std::string& folder, const std::vector<std::string>& endings) {
  std::error_code error;
  Listing listing;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const std::string path = entry->path().string();
    const auto ends = [&](const std::string& ending) {
      return absl::EndsWithIgnoreCase(path, ending);
    };
    const bool read = endings.empty()
                          ? entry->is_directory(ignored)
                          : entry->is_regular_file(ignored) && std::ranges::any_of(endings, ends);
    (read ? listing.paths : listing.others).push_back(path);
  }
  if (error) {
    const absl::Status status(absl::ErrnoToStatusCode(error.value()),
                              absl::StrCat("cannot list ", folder, ": ", error.message()));
    return WithNearFile(status, folder);
  }
  std::ranges::sort(listing.paths);
  std::ranges::sort(listing.others);
  return listing;
}

std::string LeftOutOf(const std::string& folder, const std::vector<std::string>& others,
                      const std::string& expected) {
  if (others.empty()) return "";
  return absl::StrFormat("of %s %d are left out (%s%s): expected %s", folder, others.size(),
                         fs::path(others[0]).lexically_relative(folder).string(),
                         others.size() > 1 ? ", ..." : "", expected);
}

}  // namespace gyre
