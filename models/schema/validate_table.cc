#include <map>
#include <string>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "models/schema/validate.h"

namespace gyre {
namespace {

class TableCheck {
 public:
  TableCheck(const TableConfig& table, absl::string_view label, const SourceMap& source)
      : table_(table), label_(absl::StrCat(label, ".table")), source_(source) {}

  absl::Status Files() const {
    if (table_.file_size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(source_.Where(table_), ": missing ", label_,
                                                     ".file; write file: \"houses.csv\""));
    }
    for (int i = 0; i < table_.file_size(); ++i) {
      if (table_.file(i).empty()) return Error("file", "is empty", i);
    }
    return absl::OkStatus();
  }

  // Each column is one thing.  A label among the inputs would be a net that sees the answer.
  absl::Status Columns() const {
    std::map<std::string, std::string> fields;
    const auto take = [&](const char* field, const auto& names) -> absl::Status {
      for (int i = 0; i < names.size(); ++i) {
        if (names.Get(i).empty()) return Error(field, "a column without a name", i);
        const auto [other, is_new] = fields.emplace(names.Get(i), field);
        if (is_new) continue;
        return Error(
            field, absl::StrCat("column \"", names.Get(i), "\" is already in ", other->second), i);
      }
      return absl::OkStatus();
    };
    absl::Status status = take("label", table_.label());
    if (status.ok()) status = take("column", table_.column());
    if (status.ok()) status = take("index", table_.index());
    if (status.ok()) status = take("text", table_.text());
    if (status.ok()) status = take("ignore", table_.ignore());
    for (const auto& [field, name, has] :
         {std::tuple("group", table_.group(), table_.has_group()),
          std::tuple("time", table_.time(), table_.has_time()),
          std::tuple("weight", table_.weight(), table_.has_weight())}) {
      if (!status.ok() || !has) continue;
      if (name.empty()) return Error(field, "is empty");
      // A column may be read as a number, too.
      const auto other = fields.find(name);
      if (other == fields.end() || other->second == "column") continue;
      status = Error(field, absl::StrCat("column \"", name, "\" is already in ", other->second));
    }
    if (!status.ok()) return status;
    for (int i = 0; i < table_.category_size(); ++i) {
      const std::string& name = table_.category(i);
      const auto field = fields.find(name);
      const bool is_column = table_.column_size() > 0
                                 ? field != fields.end() && field->second == "column"
                                 : field == fields.end() && name != table_.group() &&
                                       name != table_.time() && name != table_.weight();
      if (is_column) continue;
      return Error(
          "category",
          absl::StrCat("expected a column of \"columns\", got \"", name,
                       field == fields.end() ? "\"; add it to column"
                                             : absl::StrCat("\", which is in ", field->second)),
          i);
    }
    return absl::OkStatus();
  }

  absl::Status Cells() const {
    if (!IsMark(table_.separator()) || table_.separator() == "\"") {
      return Error("separator", "expected one character, such as \";\" or \"\\t\"");
    }
    if (table_.decimal() != "." && table_.decimal() != ",") {
      return Error("decimal", "expected \".\" or \",\"");
    }
    if (table_.decimal() == table_.separator()) {
      return Error(table_.has_separator() ? "separator" : "decimal",
                   "separator and decimal are both \",\"; a table of decimal commas has another "
                   "separator, such as \";\"");
    }
    if (table_.has_comment() &&
        (!IsMark(table_.comment()) || table_.comment() == table_.separator() ||
         table_.comment() == "\"" || table_.comment() == " " || table_.comment() == "\t")) {
      return Error("comment", "expected one character, such as \"#\"");
    }
    return absl::OkStatus();
  }

  absl::Status Samples() const {
    const bool has_text = table_.text_size() > 0;
    if (has_text != table_.has_length()) {
      return Error(has_text ? "text" : "length",
                   has_text ? "columns of texts need length, words of a text; write length: 64"
                            : "is the words of a text, but no text is named; leave it out");
    }
    if (table_.has_words() && !has_text) {
      return Error("words", "is the vocabulary of texts, but no text is named; leave it out");
    }
    if (has_text && table_.has_window()) {
      return Error("text", "a series in windows has no texts; leave window out, or text");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const char* field, const std::string& what, int index = -1) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source_.Where(table_, field, index), ": ", label_, ".", field, ": ", what));
  }
  // One byte of ASCII that is no part of a number or a word.
  static bool IsMark(const std::string& text) {
    if (text.size() != 1) return false;
    const auto c = static_cast<unsigned char>(text[0]);
    return absl::ascii_isascii(c) && !absl::ascii_isalnum(c) && c != '\0' && c != '\n' &&
           c != '\r' && c != '-' && c != '+' && c != '.';
  }

  const TableConfig& table_;
  const std::string label_;
  const SourceMap& source_;
};

}  // namespace

absl::Status ValidateTable(const TableConfig& table, absl::string_view label,
                           const SourceMap& source) {
  const TableCheck check(table, label, source);
  absl::Status status = check.Files();
  if (!status.ok() || !absl::StartsWith(label, "data.train")) return status;
  status = check.Columns();
  if (status.ok()) status = check.Cells();
  if (status.ok()) status = check.Samples();
  return status;
}

}  // namespace gyre
