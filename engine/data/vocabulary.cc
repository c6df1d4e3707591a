#include "engine/data/vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr std::string_view kEndOfLine = "<eos>", kBreak = "<br />";
constexpr char kClass[] = "class\t";

// Bytes of the character that text begins with; 0: it is no UTF-8.
// Source: The Unicode Standard 15, table 3-7.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return bytes;
}

absl::Status ErrorAt(int64_t line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(line, ": ", what));
}

bool IsOfWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '\'' ||
         static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

absl::Status ForEachToken(std::string_view text, TokenKind kind,
                          const std::function<void(std::string_view)>& token) {
  int64_t line = 1;
  std::string word;
  bool tokens_in_line = false;
  const auto end_word = [&] {
    if (word.empty()) return;
    token(word);
    tokens_in_line = true;
    word.clear();
  };
  const auto end_line = [&] {
    end_word();
    if (tokens_in_line && kind == TokenKind::kWords) token(kEndOfLine);
    tokens_in_line = false;
  };
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const std::string_view rest = text.substr(at);
    bytes = CharacterBytes(rest);
    if (bytes == 0) return ErrorAt(line, "not UTF-8");
    const char c = rest[0];
    line += c == '\n';
    if (kind == TokenKind::kCharacters) {
      token(rest.substr(0, bytes));
    } else if (IsOfWord(c)) {
      word.append(rest.substr(0, bytes));
      if (kind == TokenKind::kLowerWords) word.back() = absl::ascii_tolower(word.back());
    } else if (c == '\n') {
      end_line();
    } else {
      end_word();
      if (rest.starts_with(Vocabulary::kUnknown)) {
        bytes = std::string_view(Vocabulary::kUnknown).size();
      } else if (rest.starts_with(kBreak)) {
        bytes = kBreak.size();
        continue;
      }
      if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) continue;
      token(rest.substr(0, bytes));
      tokens_in_line = true;
    }
  }
  end_line();
  return absl::OkStatus();
}

void Vocabulary::Add(std::string token) {
  numbers_.emplace(token, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(std::move(token));
}

void CountToken(std::string_view token, TokenCounts& counts) {
  const auto found = counts.find(token);
  found == counts.end() ? counts.emplace(token, 1).first->second : ++found->second;
}

Vocabulary Vocabulary::Of(const TokenCounts& counts, int64_t most,
                          std::vector<std::string> classes) {
  std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
  std::erase_if(sorted,
                [](const auto& counted) { return counted.first == std::string_view(kUnknown); });
  if (most > 0) {
    std::ranges::stable_sort(sorted, std::ranges::greater(),
                             [](const auto& c) { return c.second; });
    sorted.resize(std::min(sorted.size(), static_cast<size_t>(most) - 1));
  }
  Vocabulary vocabulary;
  vocabulary.classes_ = std::move(classes);
  vocabulary.Add(std::string(kUnknown));
  for (const auto& [token, count] : sorted) vocabulary.Add(std::string(token));
  return vocabulary;
}

absl::StatusOr<Vocabulary> Vocabulary::Parse(const std::string& text) {
  Vocabulary vocabulary;
  int64_t number = 0;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (const std::string& line : lines) {
    ++number;
    if (line.starts_with(kClass) && vocabulary.tokens_.empty()) {
      vocabulary.classes_.emplace_back(line.substr(sizeof(kClass) - 1));
      continue;
    }
    std::string token;
    if (!absl::CUnescape(line, &token) || token.empty()) {
      return ErrorAt(number, "expected a token, with C's escapes");
    }
    if (vocabulary.tokens_.empty() && token != kUnknown) {
      return ErrorAt(number, absl::StrCat("the first token is ", kUnknown, " in a vocabulary"));
    }
    if (vocabulary.numbers_.contains(token)) {
      return ErrorAt(number, absl::StrCat("the token \"", line, "\" is there twice"));
    }
    vocabulary.Add(std::move(token));
  }
  if (vocabulary.tokens_.empty()) return ErrorAt(1, "a vocabulary without tokens");
  return vocabulary;
}

std::string Vocabulary::text() const {
  std::string text;
  for (const std::string& name : classes_) absl::StrAppend(&text, kClass, name, "\n");
  for (const std::string& token : tokens_) {
    absl::StrAppend(&text, absl::Utf8SafeCEscape(token), "\n");
  }
  return text;
}

int32_t Vocabulary::Number(std::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? 0 : found->second;
}

}  // namespace gyre
