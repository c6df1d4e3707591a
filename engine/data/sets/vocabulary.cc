#include "engine/data/sets/vocabulary.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"
#include "models/schema/text_encoding.h"

namespace gyre {
namespace {

constexpr std::string_view kEndOfLine = "<eos>", kBreak = "<br />";
constexpr char kClass[] = "class\t";

// Bytes of the character that text begins with; 0: it is no UTF-8.
size_t CharacterBytes(std::string_view text, utf8proc_int32_t* character) {
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), character);
  return bytes < 0 ? 0 : static_cast<size_t>(bytes);
}

void AppendLower(utf8proc_int32_t character, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(utf8proc_tolower(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
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
    utf8proc_int32_t character = 0;
    bytes = CharacterBytes(rest, &character);
    if (bytes == 0) return ErrorAt(line, "not UTF-8");
    const char c = rest[0];
    line += c == '\n';
    if (kind == TokenKind::kCharacters) {
      token(rest.substr(0, bytes));
    } else if (rest.starts_with(kByteOrderMark)) {
      end_word();
    } else if (IsOfWord(c)) {
      if (kind == TokenKind::kLowerWords) {
        AppendLower(character, word);
        continue;
      }
      word.append(rest.substr(0, bytes));
      if (kind == TokenKind::kLowerAsciiWords) word.back() = absl::ascii_tolower(word.back());
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

void Vocabulary::Numbered::Add(std::string name) {
  numbers.emplace(name, static_cast<int32_t>(names.size()));
  names.push_back(std::move(name));
}

int32_t Vocabulary::Numbered::Find(std::string_view name, int32_t unknown) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? unknown : found->second;
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
  for (std::string& name : classes) vocabulary.classes_.Add(std::move(name));
  vocabulary.tokens_.Add(std::string(kUnknown));
  for (const auto& [token, count] : sorted) vocabulary.tokens_.Add(std::string(token));
  return vocabulary;
}

absl::StatusOr<Vocabulary> Vocabulary::Parse(const std::string& text) {
  Vocabulary vocabulary;
  int64_t number = 0;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (const std::string& line : lines) {
    ++number;
    if (line.starts_with(kClass) && vocabulary.tokens_.names.empty()) {
      vocabulary.classes_.Add(line.substr(sizeof(kClass) - 1));
      continue;
    }
    std::string token;
    if (!absl::CUnescape(line, &token) || token.empty()) {
      return ErrorAt(number, "expected a token, with C's escapes");
    }
    if (vocabulary.tokens_.names.empty() && token != kUnknown) {
      return ErrorAt(number, absl::StrCat("the first token is ", kUnknown, " in a vocabulary"));
    }
    if (vocabulary.tokens_.numbers.contains(token)) {
      return ErrorAt(number, absl::StrCat("the token \"", line, "\" is there twice"));
    }
    vocabulary.tokens_.Add(std::move(token));
  }
  if (vocabulary.tokens_.names.empty()) return ErrorAt(1, "a vocabulary without tokens");
  return vocabulary;
}

std::string Vocabulary::text() const {
  std::string text;
  for (const std::string& name : classes_.names) absl::StrAppend(&text, kClass, name, "\n");
  for (const std::string& token : tokens_.names) {
    absl::StrAppend(&text, absl::Utf8SafeCEscape(token), "\n");
  }
  return text;
}

TokenKind Vocabulary::LowerKind() const {
  for (const std::string& token : tokens_.names) {
    std::string lower;
    utf8proc_int32_t character = 0;
    for (std::string_view rest = token; !rest.empty();) {
      const size_t bytes = CharacterBytes(rest, &character);
      if (bytes == 0) {  // no text's
        lower = token;
        break;
      }
      AppendLower(character, lower);
      rest.remove_prefix(bytes);
    }
    if (lower != token) return TokenKind::kLowerAsciiWords;
  }
  return TokenKind::kLowerWords;
}

}  // namespace gyre
