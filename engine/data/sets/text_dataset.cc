// Text for a language model: tokens of files, and those after them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/files/text_file.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/vocabulary.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

TokenKind KindOf(const TextConfig& config) {
  return config.unit() == TextConfig::WORD ? TokenKind::kWords : TokenKind::kCharacters;
}

// Calls `token` for those of a file, of which there is one at least.
absl::Status ReadTokens(const std::string& path, TokenKind kind,
                        const std::function<void(std::string_view)>& token) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  bool any = false;
  const absl::Status status = ForEachToken(text, kind, [&](std::string_view t) {
    any = true;
    token(t);
  });
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(path, ":", status.message()));
  return any ? status : absl::InvalidArgumentError(absl::StrCat(path, ": no text in it"));
}

absl::StatusOr<std::string> MakeVocabulary(const SeriesSource& source, const TextConfig& config) {
  TokenCounts counts;
  for (const std::string& file : config.file()) {
    RETURN_IF_ERROR(ReadTokens(source.Resolve(file), KindOf(config),
                               [&](std::string_view token) { ++counts[std::string(token)]; }));
  }
  const bool words = config.unit() == TextConfig::WORD;
  return Vocabulary::Of(counts, words ? config.words() : 0).text();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const SeriesSource& source) {
  const TextConfig& config = source.data.train().text();
  ASSIGN_OR_RETURN(std::string fit, FitFor(source, kVocabularyFile, config.vocabulary(),
                                           [&] { return MakeVocabulary(source, config); }));
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, ParseVocabulary(source, fit, config.vocabulary()));
  std::vector<int32_t> tokens, next;
  std::vector<size_t> begins;
  for (const std::string& file : source.set().text().file()) {
    begins.push_back(tokens.size());
    RETURN_IF_ERROR(ReadTokens(source.Resolve(file), KindOf(config), [&](std::string_view token) {
      tokens.push_back(vocabulary.Number(token));
    }));
    next.insert(next.end(), tokens.begin() + static_cast<int64_t>(begins.back()) + 1, tokens.end());
    next.push_back(kIgnored);
  }
  const int64_t length = config.length();
  const int64_t samples = (static_cast<int64_t>(tokens.size()) + length - 1) / length;
  const std::string name = source.Resolve(source.set().text().file(0));
  // A short text may be asked for in samples of any length.
  RETURN_IF_ERROR(CheckFitsMemory(
      name, 3 * sizeof(int32_t) * static_cast<uint64_t>(samples) * static_cast<uint64_t>(length)));
  HostArray text = NewArray<int32_t>(samples, {length}), following = text, reset = text;
  std::ranges::copy(tokens, ElementsOf<int32_t>(text));
  std::fill_n(ElementsOf<int32_t>(following), samples * length, kIgnored);
  std::ranges::copy(next, ElementsOf<int32_t>(following));
  for (const size_t begin : begins) ElementsOf<int32_t>(reset)[begin] = 1;
  auto dataset = std::make_unique<MemoryDataset>();
  RETURN_IF_ERROR(dataset->Add("text", name, std::move(text)));
  RETURN_IF_ERROR(dataset->Add("next", name, std::move(following)));
  RETURN_IF_ERROR(dataset->Add("reset", name, std::move(reset), /*reset=*/true));
  dataset->SetFit({{kVocabularyFile, std::move(fit)}});
  return dataset;
}

}  // namespace gyre
