// vocabulary.h: tokens of text and their numbers.  Immutable.  Any thread may read.
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
  kCharacters,       // of Unicode
  kWords,            // words, other visible characters, and <eos> at the end of a line with tokens
  kLowerWords,       // words in lower case, by Unicode, character by character, without <eos>
  kLowerAsciiWords,  // kLowerWords that lowers A-Z alone, for vocabularies of earlier versions
};

// Calls `token` for each token of UTF-8 text, in order.  A word is a run of letters, digits,
// apostrophes and characters beyond ASCII.  "<unk>" is a token.  "<br />" and byte order marks
// between words (of joined files) are not.
// Errors: InvalidArgument "3: not UTF-8" with the number of the line.
absl::Status ForEachToken(std::string_view text, TokenKind kind,
                          const std::function<void(std::string_view)>& token);

using TokenCounts = std::map<std::string, int64_t, std::less<>>;

class Vocabulary {
 public:
  static constexpr char kUnknown[] = "<unk>";  // token 0

  // <unk>, then the `most` - 1 most frequent tokens, ties in byte order.  0: all, in byte order.
  static Vocabulary Of(const TokenCounts& counts, int64_t most,
                       std::vector<std::string> classes = {});
  // Parses text()'s format.  Errors: InvalidArgument "3: ..." with the number of the line.
  static absl::StatusOr<Vocabulary> Parse(const std::string& text);
  // One line a class, "class" TAB NAME, then one line a token.  Bytes that are neither visible
  // ASCII nor part of a character are C escapes.
  std::string text() const;

  int64_t size() const { return static_cast<int64_t>(tokens_.names.size()); }
  const std::vector<std::string>& classes() const { return classes_.names; }
  // 0 and -1: unknown.
  int32_t Number(std::string_view token) const { return tokens_.Find(token, 0); }
  int32_t ClassNumber(std::string_view name) const { return classes_.Find(name, -1); }
  // The kind that made the words: kLowerWords, or kLowerAsciiWords if one has a capital.
  TokenKind LowerKind() const;

 private:
  struct Numbered {
    void Add(std::string name);
    int32_t Find(std::string_view name, int32_t unknown) const;

    std::vector<std::string> names;
    std::map<std::string, int32_t, std::less<>> numbers;  // of each in names
  };
  Numbered classes_, tokens_;
};

}  // namespace gyre
