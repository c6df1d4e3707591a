#include "engine/data/sets/series.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

const NetInput* SeriesSource::Input(const std::string& name) const {
  const auto found = std::ranges::find(inputs, name, &NetInput::name);
  return found == inputs.end() ? nullptr : &*found;
}

absl::StatusOr<std::string> FitFor(const SeriesSource& source, const std::string& name,
                                   const std::string& file,
                                   const std::function<absl::StatusOr<std::string>()>& make) {
  const auto known = source.fit.find(name);
  std::string text;
  if (!file.empty()) {
    ASSIGN_OR_RETURN(text, ReadText(source.Resolve(file)));
    absl::StrReplaceAll({{"\r\n", "\n"}}, &text);
    if (!text.empty() && !text.ends_with('\n')) text += '\n';  // by an editor
  } else if (known != source.fit.end()) {
    return known->second;
  } else if (source.fit.empty()) {
    return make();
  }
  const std::string difference = DifferenceOf(
      known == source.fit.end() ? source.fit : Fit{{name, known->second}}, {{name, text}});
  if (difference.empty()) return text;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is of another run than the weights: %s; leave it out, or name that of "
                      "their run",
                      file.empty() ? name : source.Resolve(file), difference));
}

absl::StatusOr<Vocabulary> ParseVocabulary(const SeriesSource& source, const std::string& text,
                                           const std::string& file) {
  auto vocabulary = Vocabulary::Parse(text);
  if (vocabulary.ok()) return vocabulary;
  return absl::Status(vocabulary.status().code(),
                      absl::StrCat(file.empty() ? kVocabularyFile : source.Resolve(file), ":",
                                   vocabulary.status().message()));
}

absl::Status CheckClassName(const std::string& where, const std::string& name) {
  if (name.find('\n') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": a class of several lines"));
}

absl::Status CheckTwoClasses(const std::string& first, std::span<const std::string> classes) {
  if (classes.size() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(first, " and all others are of class \"",
                                                 classes[0], "\"; there must be two classes"));
}

absl::Status UnknownClass(const std::string& who, const std::string& name,
                          std::span<const std::string> classes) {
  constexpr size_t kMost = 10;
  const bool more = classes.size() > kMost;
  const std::string told = absl::StrJoin(classes.first(more ? kMost : classes.size()), "\", \"");
  return absl::InvalidArgumentError(absl::StrCat(
      who, " class \"", name, "\", but those trained on are ",
      classes.empty() ? "numbers" : absl::StrCat("\"", told, more ? "\", ..." : "\"")));
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
