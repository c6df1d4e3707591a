// Texts, each of a class: a folder of files a class, or a file of lines LABEL TAB TEXT.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/files/text_file.h"
#include "engine/data/sets/hold_out.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/vocabulary.h"
#include "engine/runtime/check.h"
#include "models/schema/text_encoding.h"

namespace gyre {
namespace {

// The folder of reviews without a label in the public IMDB set.
constexpr char kUnlabelled[] = "unsup";
// The input that takes the classes.
constexpr char kLabel[] = "label";

struct Review {
  std::string where;  // a file, or its line
  bool is_line;
  std::string label, text;
};

struct Reviews {
  std::vector<Review> reviews;  // one at least
  std::string left_out;         // a note
};

absl::StatusOr<Reviews> ReadFolder(const std::string& folder) {
  std::vector<Review> reviews;
  ASSIGN_OR_RETURN(Listing classes, List(folder, {}));
  std::vector<std::string>& others = classes.others;
  for (const std::string& label_folder : classes.paths) {
    const std::string label = std::filesystem::path(label_folder).filename().string();
    if (label == kUnlabelled || label[0] == '.') {
      others.push_back(label_folder);
      continue;
    }
    ASSIGN_OR_RETURN(const Listing files, List(label_folder, {".txt"}));
    if (files.paths.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(label_folder, ": no .txt file in it"));
    }
    others.insert(others.end(), files.others.begin(), files.others.end());
    for (const std::string& file : files.paths) {
      ASSIGN_OR_RETURN(std::string text, ReadText(file));
      reviews.push_back({file, /*is_line=*/false, label, std::move(text)});
    }
  }
  if (reviews.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": no folder of .txt files in it"));
  }
  return Reviews{std::move(reviews),
                 LeftOutOf(folder, others, "folders, a class each, of .txt files")};
}

// Without labels a line may be its text alone.
absl::StatusOr<Reviews> ReadLines(const std::string& path, bool labelled) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::vector<Review> reviews;
  RETURN_IF_ERROR(ForEachLine(text, [&](int64_t number, std::string_view review) -> absl::Status {
    if (review.starts_with(kByteOrderMark)) review.remove_prefix(kByteOrderMark.size());  // of cat
    if (review.empty()) return absl::OkStatus();
    const std::string where = absl::StrCat(path, ":", number);
    const size_t tab = review.find('\t');
    const bool has_label = tab != std::string_view::npos && tab > 0;
    if (labelled && !has_label) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected LABEL TAB TEXT"));
    }
    reviews.push_back(
        {where, /*is_line=*/true, std::string(review.substr(0, has_label ? tab : 0)),
         std::string(tab == std::string_view::npos ? review : review.substr(tab + 1))});
    return absl::OkStatus();
  }));
  if (reviews.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no review in it"));
  return Reviews{std::move(reviews), ""};
}

absl::StatusOr<Reviews> ReadReviews(const SeriesSource& source, const ReviewsConfig& config,
                                    bool labelled = true) {
  return config.has_folder() ? ReadFolder(source.Resolve(config.folder()))
                             : ReadLines(source.Resolve(config.file()), labelled);
}

// Calls `word` for those of a review, of which there is one at least.
absl::Status ReadWords(const Review& review, TokenKind kind,
                       const std::function<void(std::string_view)>& word) {
  bool any = false;
  const absl::Status status = ForEachToken(review.text, kind, [&](auto token) {
    any = true;
    word(token);
  });
  if (!status.ok()) {
    // Its line in a file that is all the review's; a review that is a line says so itself.
    absl::string_view what = status.message();
    if (review.is_line) what.remove_prefix(std::min(what.find(": "), what.size()));
    return absl::Status(status.code(), absl::StrCat(review.where, review.is_line ? "" : ":", what));
  }
  return any ? status : absl::InvalidArgumentError(absl::StrCat(review.where, ": an empty review"));
}

// Those that data.split holds back.  Empty where nothing can be split, which Split says later.
std::vector<bool> HeldReviews(const std::vector<Review>& reviews, const DataConfig& data) {
  if (!data.has_split() || data.split().by() == HoldOutConfig::GROUP) return {};
  std::map<std::string_view, int64_t> numbers;
  std::vector<int64_t> kinds;
  for (const Review& review : reviews) {
    const auto next = static_cast<int64_t>(numbers.size());
    kinds.push_back(numbers.emplace(review.label, next).first->second);
  }
  return HeldOut(static_cast<int64_t>(reviews.size()), data.split(), kinds);
}

// Of the words that are trained on, and all classes.
absl::StatusOr<std::string> MakeVocabulary(const std::vector<Review>& reviews,
                                           const DataConfig& data) {
  const std::vector<bool> held = HeldReviews(reviews, data);
  TokenCounts counts;
  std::set<std::string> classes;
  for (size_t i = 0; i < reviews.size(); ++i) {
    const Review& review = reviews[i];
    RETURN_IF_ERROR(CheckClassName(review.where, review.label));  // a folder may have any name
    classes.insert(review.label);
    if (!held.empty() && held[i]) continue;
    RETURN_IF_ERROR(ReadWords(review, TokenKind::kLowerWords,
                              [&](std::string_view word) { ++counts[std::string(word)]; }));
  }
  std::vector<std::string> sorted(classes.begin(), classes.end());
  RETURN_IF_ERROR(CheckTwoClasses(reviews[0].where, sorted));
  return Vocabulary::Of(counts, data.train().reviews().words(), std::move(sorted)).text();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenReviews(const SeriesSource& source) {
  const ReviewsConfig& config = source.data.train().reviews();
  // A net that predicts takes no labels.
  const bool labelled = source.train || source.inputs.empty() || source.Input(kLabel) != nullptr;
  ASSIGN_OR_RETURN(const Reviews read, ReadReviews(source, source.set().reviews(), labelled));
  const std::vector<Review>& reviews = read.reviews;
  const auto make = [&]() -> absl::StatusOr<std::string> {
    if (source.train) return MakeVocabulary(reviews, source.data);
    ASSIGN_OR_RETURN(const Reviews training, ReadReviews(source, config));
    return MakeVocabulary(training.reviews, source.data);
  };
  ASSIGN_OR_RETURN(std::string fit, FitFor(source, kVocabularyFile, config.vocabulary(), make));
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, ParseVocabulary(source, fit, config.vocabulary()));
  const TokenKind kind = vocabulary.LowerKind();

  const int64_t length = config.length();
  const auto count = static_cast<int64_t>(reviews.size());
  const uint64_t elements = static_cast<uint64_t>(length) * static_cast<uint64_t>(count);
  RETURN_IF_ERROR(CheckFitsMemory(reviews[0].where, elements * sizeof(int32_t)));
  HostArray text = NewArray<int32_t>(count, {length}), lengths = NewArray<int32_t>(count, {}),
            labels = lengths;
  std::vector<int32_t> words;
  int64_t cut = 0, all = 0, unknown = 0;
  std::string unknown_word;  // the first
  for (int64_t i = 0; i < count; ++i) {
    const Review& review = reviews[static_cast<size_t>(i)];
    words.clear();
    RETURN_IF_ERROR(ReadWords(review, kind, [&](std::string_view word) {
      words.push_back(vocabulary.Number(word));
      ++all;
      if (words.back() == 0 && unknown++ == 0) unknown_word = word;
    }));
    const int64_t kept = std::min(length, static_cast<int64_t>(words.size()));
    cut += kept < static_cast<int64_t>(words.size()) ? 1 : 0;
    std::copy(words.end() - kept, words.end(), ElementsOf<int32_t>(text) + i * length);
    ElementsOf<int32_t>(lengths)[i] = static_cast<int32_t>(kept);
    if (!labelled) continue;
    const int32_t label = vocabulary.ClassNumber(review.label);
    if (label < 0) {
      return UnknownClass(absl::StrCat(review.where, ": is of"), review.label,
                          vocabulary.classes());
    }
    ElementsOf<int32_t>(labels)[i] = label;
  }
  const ReviewsConfig& set = source.set().reviews();
  const std::string name = source.Resolve(set.has_folder() ? set.folder() : set.file());
  auto dataset = std::make_unique<MemoryDataset>();
  dataset->SetLengths({ElementsOf<int32_t>(lengths), ElementsOf<int32_t>(lengths) + count});
  RETURN_IF_ERROR(dataset->Add("text", name, std::move(text)));
  RETURN_IF_ERROR(dataset->Add("length", name, std::move(lengths)));
  if (labelled) RETURN_IF_ERROR(dataset->Add(kLabel, name, std::move(labels)));
  dataset->SetFit({{kVocabularyFile, std::move(fit)}});
  dataset->AddNote(read.left_out);
  if (unknown > 0 && !labelled) {
    dataset->AddNote(
        absl::StrFormat("%d of %d words of %s are not in the vocabulary, such as \"%s\"", unknown,
                        all, name, unknown_word));
  }
  if (cut > 0) {
    dataset->AddNote(
        absl::StrFormat("%d of the %d texts of %s have more than %d words: their last "
                        "%d are kept",
                        cut, count, name, length, length));
  }
  return dataset;
}

}  // namespace gyre
