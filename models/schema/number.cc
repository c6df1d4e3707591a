#include "models/schema/number.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "models/schema/first_error.h"

namespace gyre {
namespace {

using google::protobuf::io::Tokenizer;

std::string WrongToken(const Tokenizer::Token& token) {
  const std::string& text = token.text;
  if (token.type == Tokenizer::TYPE_INTEGER && text.size() > 1 && text[0] == '0' &&
      absl::ascii_isdigit(static_cast<unsigned char>(text[1]))) {
    return absl::StrCat(text,
                        ": a number with a leading 0 is octal to some readers; leave the 0 out");
  }
  if (token.type != Tokenizer::TYPE_FLOAT) return "";
  const double value = Tokenizer::ParseFloat(text);
  if (std::isinf(value)) return absl::StrCat(text, ": expected at most 1.8e308");
  const bool zero =
      text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == text.npos;
  if (value != 0 || zero) return "";
  return absl::StrCat(text, ": expected 0, or at least 4.9e-324");
}

struct Wrong {
  std::string what;
  int line = 0, column = 0;
};
Wrong FindWrong(std::string_view text) {
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  FirstError ignored;                     // what is no token is for others to tell
  Tokenizer tokenizer(&input, &ignored);  // as protobuf's parser has it
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokenizer.set_allow_f_after_float(true);
  tokenizer.set_require_space_after_number(false);
  tokenizer.set_allow_multiline_strings(true);
  while (tokenizer.Next()) {
    const Tokenizer::Token& token = tokenizer.current();
    std::string what = WrongToken(token);
    if (!what.empty()) return {std::move(what), token.line + 1, token.column + 1};
  }
  return {};
}

}  // namespace

std::string WrongNumber(std::string_view text) { return FindWrong(text).what; }

absl::Status CheckNumbers(std::string_view text, const std::string& file) {
  const Wrong wrong = FindWrong(text);
  if (wrong.what.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file, ":", wrong.line, ":", wrong.column, ": ", wrong.what));
}

}  // namespace gyre
