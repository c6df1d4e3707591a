#include "models/schema/text_encoding.h"

namespace gyre {

absl::StatusOr<std::string_view> WithoutMark(std::string_view text) {
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    return text.substr(kByteOrderMark.size());
  }
  const std::string_view first = text.substr(0, 2);
  // Without a mark, a character of ASCII has a zero byte beside it.
  const bool wide = first == "\xff\xfe" || first == "\xfe\xff" ||
                    (first.size() == 2 && (first[0] == '\0') != (first[1] == '\0'));
  if (!wide) return text;
  return absl::InvalidArgumentError(
      "the text is in UTF-16 or UTF-32; expected UTF-8, as iconv -t UTF-8 makes it");
}

}  // namespace gyre
