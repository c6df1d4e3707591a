// vocabulary.h: tokens of text and their numbers.  Immutable; any thread may read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

enum class TokenKind {
  kCharacters,  // of Unicode
  kWords,       // and each other visible character, and <eos> for the end of a line with tokens
  kLowerWords,  // words in lower case, each character by Unicode's; no ends of lines
  kLowerAsciiWords,  // the same of A-Z alone, as vocabularies of earlier versions have them
};

// Calls `token` for each token of UTF-8 text, in order.  A word is a run of letters, digits,
// apostrophes and characters beyond ASCII; "<unk>" is a token, "<br />" and byte order marks
// between words (of files that were joined) are none. Errors: InvalidArgument "3: not UTF-8" with
// the number of the line.
absl::Status ForEachToken(std::string_view text, TokenKind kind,
                          const std::function<void(std::string_view)>& token);

using TokenCounts = std::map<std::string, int64_t, std::less<>>;
void CountToken(std::string_view token, TokenCounts& counts);

class Vocabulary {
 public:
  static constexpr char kUnknown[] = "<unk>";  // token 0

  // Of counted tokens: <unk>, then the most frequent up to `most` in all, of equally frequent ones
  // the first in the order of bytes.  most 0: all of them, in the order of bytes.
  static Vocabulary Of(const TokenCounts& counts, int64_t most,
                       std::vector<std::string> classes = {});
  // As text() has written it.  Errors: InvalidArgument "3: ..." with the number of the line.
  static absl::StatusOr<Vocabulary> Parse(const std::string& text);
  // A line a class, "class" TAB NAME; then a line a token, with C's escapes of what is no visible
  // ASCII or part of a character.
  std::string text() const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<std::string>& classes() const { return classes_; }
  int32_t Number(std::string_view token) const;      // 0: unknown
  int32_t ClassNumber(std::string_view name) const;  // -1: unknown
  // How the words were made of which there are tokens: kLowerWords, unless one has a capital.
  TokenKind LowerKind() const;

 private:
  void Add(std::string token);
  void AddClass(std::string name);

  std::vector<std::string> classes_, tokens_;
  std::map<std::string, int32_t, std::less<>> numbers_, class_numbers_;
};

}  // namespace gyre
