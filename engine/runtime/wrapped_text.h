// wrapped_text.h: text in lines for a terminal of 80 columns.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace gyre {

inline constexpr size_t kTextColumns = 80;

// Returns `head` and the words of `text`, in lines of at most 80 columns.  Later lines begin with
// `indent` spaces.  Longer words are cut behind commas, if any.  The last line has no end.
inline std::string Wrapped(const std::string& head, std::string_view text, size_t indent = 2) {
  std::string out, line = head;
  bool first = true;  // in its line
  while (!text.empty()) {
    if (text.front() == ' ') {
      text.remove_prefix(1);
      continue;
    }
    std::string_view word = text.substr(0, text.find(' '));
    if (word.size() > kTextColumns - indent) {
      const size_t comma = word.rfind(',', kTextColumns - indent - 1);
      if (comma != std::string_view::npos) word = word.substr(0, comma + 1);
    }
    if (!first && line.size() + 1 + word.size() > kTextColumns) {
      out += line + "\n";
      line = std::string(indent, ' ');
      first = true;
    }
    line += (first ? "" : " ") + std::string(word);
    first = false;
    text.remove_prefix(word.size());
  }
  return out + line;
}

// Prints Wrapped on standard error.
inline void PrintNote(const std::string& head, std::string_view text) {
  std::fprintf(stderr, "%s\n", Wrapped(head, text).c_str());
}

// Returns at most `columns` columns.  Cut text ends with "~".
inline std::string Cut(const std::string& text, size_t columns) {
  return text.size() <= columns ? text : text.substr(0, columns - 1) + "~";
}

}  // namespace gyre
