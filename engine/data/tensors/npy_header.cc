#include "engine/data/tensors/npy_header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// What is left of the literal.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Whether `c` comes next; then it is passed.
  bool Take(char c) {
    SkipSpace();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool AtEnd() {
    SkipSpace();
    return text_.empty();
  }
  // The characters up to the first that is none of a name or number.
  std::string Word() {
    SkipSpace();
    const auto end =
        std::ranges::find_if_not(text_, [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
    return Pass(static_cast<size_t>(end - text_.begin()));
  }
  absl::StatusOr<std::string> Quoted() {
    const char quote = Take('\'') ? '\'' : '"';
    if (quote == '"' && !Take('"')) return Expected("a string in quotes");
    const size_t end = text_.find(quote);
    if (end == text_.npos) return Expected("a closing quote");
    std::string inside = Pass(end);
    text_.remove_prefix(1);
    return inside;
  }

  absl::Status Expected(std::string_view what) const {
    constexpr size_t kShown = 40;
    const std::string got =
        absl::StrReplaceAll(absl::CHexEscape(std::string(text_.substr(0, kShown))), {{"\\'", "'"}});
    return absl::DataLossError(absl::StrCat("broken .npy header: expected ", std::string(what),
                                            ", got ", text_.empty() ? "its end" : got));
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && absl::ascii_isspace(text_.front())) text_.remove_prefix(1);
  }
  std::string Pass(size_t count) {
    std::string passed(text_.substr(0, count));
    text_.remove_prefix(count);
    return passed;
  }

  std::string_view text_;
};

constexpr struct {
  std::string_view name;
  DType dtype;
} kTypes[] = {{"|u1", DType::kU8},  {"<i4", DType::kI32}, {"<i8", DType::kI64},
              {"<f2", DType::kF16}, {"<f4", DType::kF32}, {"<f8", DType::kF64}};

absl::StatusOr<DType> TypeOf(const std::string& descr) {
  const std::string shown = absl::CHexEscape(descr);
  if (!descr.empty() && descr[0] == '>') {
    return absl::InvalidArgumentError(
        absl::StrCat("elements of type '", shown,
                     "' are big-endian; expected little-endian ones, as x.astype('<f4') has"));
  }
  for (const auto& [name, dtype] : kTypes) {
    if (descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') &&
        name.ends_with(std::string_view(descr).substr(1))) {
      return dtype;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("elements of type '", shown, "'; expected one of |u1, <i4, <i8, <f2, <f4, <f8"));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(Cursor& text) {
  std::vector<int64_t> dims;
  if (!text.Take('(')) return text.Expected("a tuple");
  while (!text.Take(')')) {
    const Cursor before = text;
    int64_t extent = 0;
    if (!absl::SimpleAtoi(text.Word(), &extent) || extent < 0) {
      return before.Expected("an extent of 0 to 2^63 - 1");
    }
    dims.push_back(extent);
    if (text.Take(',')) continue;
    if (text.Take(')')) break;
    return text.Expected("a comma or )");
  }
  return dims;
}

}  // namespace

std::string_view NumpyTypeOf(DType dtype) {
  const auto type = std::ranges::find(kTypes, dtype, [](const auto& t) { return t.dtype; });
  return type == std::end(kTypes) ? "" : type->name;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view literal) {
  NpyHeader header;
  Cursor text(literal);
  std::set<std::string> keys;
  bool fortran_order = false;
  if (!text.Take('{')) return text.Expected("{");
  while (!text.Take('}')) {
    const Cursor before = text;
    ASSIGN_OR_RETURN(const std::string key, text.Quoted());
    if (!keys.insert(key).second) return before.Expected("each key once");
    if (!text.Take(':')) return text.Expected("a colon");
    if (key == "descr") {
      if (text.Take('[')) return absl::InvalidArgumentError("elements are structures");
      ASSIGN_OR_RETURN(const std::string descr, text.Quoted());
      ASSIGN_OR_RETURN(header.dtype, TypeOf(descr));
    } else if (key == "fortran_order") {
      const Cursor at = text;
      const std::string word = text.Word();
      fortran_order = word == "True";
      if (!fortran_order && word != "False") return at.Expected("True or False");
    } else if (key == "shape") {
      ASSIGN_OR_RETURN(header.dims, ParseShape(text));
    } else {
      return before.Expected("the key descr, fortran_order or shape");
    }
    if (text.Take(',')) continue;
    if (text.Take('}')) break;
    return text.Expected("a comma or }");
  }
  if (keys.size() != 3) return text.Expected("the keys descr, fortran_order and shape");
  if (!text.AtEnd()) return text.Expected("nothing more");
  // Along one axis both orders are the same.
  const auto longer =
      std::ranges::count_if(header.dims, [](int64_t extent) { return extent != 1; });
  if (fortran_order && longer > 1) {
    return absl::InvalidArgumentError(
        "the array is in Fortran order; save numpy.ascontiguousarray of it");
  }
  return header;
}

std::string NpyBeginning(const Shape& shape, DType dtype) {
  std::string extents;
  for (int64_t extent : shape.dims()) absl::StrAppend(&extents, extent, ", ");
  if (shape.rank() > 1) extents.resize(extents.size() - 2);  // (3, 4), but (3, ) and ()
  std::string header = absl::StrCat("{'descr': '", std::string(NumpyTypeOf(dtype)),
                                    "', 'fortran_order': False, 'shape': (", extents, "), }");
  constexpr size_t kPreambleBytes = 10;  // magic, version, length
  header.append(63 - (kPreambleBytes + header.size()) % 64, ' ');
  header += '\n';
  // At most six extents of 19 digits: far below the 65535 bytes of format 1.0.
  std::string preamble("\x93NUMPY\1\0", 8);
  preamble += static_cast<char>(header.size() & 0xff);
  preamble += static_cast<char>(header.size() >> 8);
  return preamble + header;
}

}  // namespace gyre
