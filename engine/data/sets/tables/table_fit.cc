#include "engine/data/sets/tables/table_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/data/sets/fit.h"
#include "engine/runtime/check.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

constexpr const char* kKinds[] = {"number", "category", "index", "text"};
constexpr const char* kLabelKinds[] = {"none", "real", "class", "integers"};
constexpr char kIndicator[] = "indicator";

std::string Escaped(const std::string& text) { return absl::Utf8SafeCEscape(text); }

// The index of `word` in `words`, or their number.
template <size_t kSize>
size_t Find(const char* const (&words)[kSize], const std::string& word) {
  return static_cast<size_t>(std::ranges::find(words, word) - std::begin(words));
}

// Reads the lines of a fit.
class Parser {
 public:
  absl::Status Line(const std::string& line) {
    cells_ = absl::StrSplit(line, '\t');
    for (std::string& cell : cells_) {
      std::string plain;
      if (!absl::CUnescape(cell, &plain)) return Error("C's escapes", line);
      cell = std::move(plain);
    }
    const std::string& what = cells_[0];
    if (what == "missing" && cells_.size() == 2 &&
        TableConfig::Missing_Parse(cells_[1], &fit_.missing)) {
      return absl::OkStatus();
    }
    if (const size_t kind = Find(kKinds, what); kind < std::size(kKinds)) {
      return Column(static_cast<TableColumn::ColumnKind>(kind), line);
    }
    if (what == "label" && cells_.size() == 3) return Label(line);
    if (cells_.size() == 2 && what == "word" && !fit_.columns.empty()) {
      return Word(fit_.columns.back().words, line);
    }
    if (cells_.size() == 2 && what == "class") return Word(fit_.classes, line);
    if (cells_.size() == 2 && what == "token") {
      absl::StrAppend(&tokens_, absl::Utf8SafeCEscape(cells_[1]), "\n");
      return absl::OkStatus();
    }
    return Error("a line of table.txt", line);
  }

  absl::StatusOr<TableFit> End() {
    const bool text = std::ranges::any_of(fit_.columns, [](const TableColumn& c) {
      return c.kind == TableColumn::ColumnKind::kText;
    });
    if (text || !tokens_.empty()) {
      auto vocabulary = Vocabulary::Parse(tokens_);
      if (!vocabulary.ok()) {
        return Annotate(vocabulary.status(), "of its lines \"token\"");
      }
      fit_.vocabulary = *std::move(vocabulary);
    }
    if (fit_.columns.empty() && fit_.labels.empty())
      return absl::InvalidArgumentError("no column in it");
    return std::move(fit_);
  }

 private:
  static absl::Status Error(const std::string& expected, const std::string& line) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expected %s, got \"%s\"", expected, absl::CEscape(line)));
  }

  absl::Status Column(TableColumn::ColumnKind kind, const std::string& line) {
    const bool number = kind == TableColumn::ColumnKind::kNumber;
    const size_t size = number ? 3 : 2;
    TableColumn column{.name = cells_.size() > 1 ? cells_[1] : "", .kind = kind};
    column.indicator = cells_.size() == size + 1 && cells_[size] == kIndicator;
    if (cells_.size() != size + (column.indicator ? 1 : 0) || cells_[1].empty() ||
        (number && (!absl::SimpleAtod(cells_[2], &column.mean) || !std::isfinite(column.mean)))) {
      return Error(absl::StrCat(cells_[0], " TAB NAME", number ? " TAB MEAN" : ""), line);
    }
    if (!names_.insert(column.name).second) return Error("another column", line);
    fit_.columns.push_back(std::move(column));
    return absl::OkStatus();
  }

  absl::Status Label(const std::string& line) {
    const size_t kind = Find(kLabelKinds, cells_[2]);
    if (kind == 0 || kind == std::size(kLabelKinds)) return Error("real, class or integers", line);
    fit_.labels.push_back(cells_[1]);
    fit_.label_kind = static_cast<LabelKind>(kind);
    return absl::OkStatus();
  }

  absl::Status Word(std::vector<std::string>& words, const std::string& line) {
    // Of one list at a time.
    if (words.empty()) words_.clear();
    if (!words_.insert(cells_[1]).second) return Error("another word", line);
    words.push_back(cells_[1]);
    return absl::OkStatus();
  }

  TableFit fit_;
  std::vector<std::string> cells_;
  std::set<std::string> names_, words_;
  std::string tokens_;
};

}  // namespace

int64_t TableColumn::values() const {
  const int64_t more = indicator ? 1 : 0;
  if (kind == ColumnKind::kNumber) return 1 + more;
  return kind == ColumnKind::kCategory ? static_cast<int64_t>(words.size()) + more : 0;
}

int64_t TableFit::values() const {
  int64_t values = 0;
  for (const TableColumn& column : columns) values += column.values();
  return values;
}

std::string TableFit::text() const {
  std::string text = absl::StrCat("missing\t", TableConfig::Missing_Name(missing), "\n");
  for (const TableColumn& column : columns) {
    absl::StrAppend(&text, kKinds[static_cast<size_t>(column.kind)], "\t", Escaped(column.name));
    if (column.kind == TableColumn::ColumnKind::kNumber) {
      absl::StrAppend(&text, "\t", ExactText(column.mean));
    }
    absl::StrAppend(&text, column.indicator ? "\t" : "", column.indicator ? kIndicator : "", "\n");
    for (const std::string& word : column.words) {
      absl::StrAppend(&text, "word\t", Escaped(word), "\n");
    }
  }
  for (const std::string& label : labels) {
    absl::StrAppend(&text, "label\t", Escaped(label), "\t",
                    kLabelKinds[static_cast<size_t>(label_kind)], "\n");
  }
  for (const std::string& name : classes) absl::StrAppend(&text, "class\t", Escaped(name), "\n");
  if (!vocabulary) return text;
  const std::string tokens = vocabulary->text();
  for (absl::string_view line : absl::StrSplit(tokens, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "token\t", line, "\n");
  }
  return text;
}

absl::StatusOr<TableFit> ParseTableFit(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  Parser parser;
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::Status status = parser.Line(lines[i]);
    if (!status.ok()) return Annotate(status, absl::StrCat(i + 1));
  }
  return parser.End();
}

absl::Status CheckTableFit(const TableFit& fit, const TableConfig& config,
                           std::optional<LabelKind> kind) {
  const auto differs = [](const std::string& what, const std::string& fits,
                          const std::string& here) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "is of a table with %s \"%s\", but data.train.table has \"%s\"", what, fits, here));
  };
  const auto listed = [](const auto& names) { return absl::StrJoin(names, ", "); };
  std::map<TableColumn::ColumnKind, std::vector<std::string>> names;
  std::vector<std::string> columns;
  for (const TableColumn& column : fit.columns) {
    names[column.kind].push_back(column.name);
    if (column.values() > 0) columns.push_back(column.name);
  }
  if (!std::ranges::equal(names[TableColumn::ColumnKind::kIndex], config.index())) {
    return differs("index", listed(names[TableColumn::ColumnKind::kIndex]), listed(config.index()));
  }
  if (!std::ranges::equal(names[TableColumn::ColumnKind::kText], config.text())) {
    return differs("text", listed(names[TableColumn::ColumnKind::kText]), listed(config.text()));
  }
  if (config.column_size() > 0 && !std::ranges::equal(columns, config.column())) {
    return differs("column", listed(columns), listed(config.column()));
  }
  if (fit.missing != config.missing()) {
    return differs("missing", TableConfig::Missing_Name(fit.missing),
                   TableConfig::Missing_Name(config.missing()));
  }
  if (kind == LabelKind::kNone) return absl::OkStatus();
  if (!std::ranges::equal(fit.labels, config.label())) {
    return differs("label", listed(fit.labels), listed(config.label()));
  }
  if (!kind || fit.label_kind == *kind) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "has a label of kind %s, but the net takes %s",
      kLabelKinds[static_cast<size_t>(fit.label_kind)], kLabelKinds[static_cast<size_t>(*kind)]));
}

std::string InputNameOf(const std::string& column) {
  std::string name = column;
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  }
  return name;
}

}  // namespace gyre
