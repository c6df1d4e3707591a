#include "engine/data/sets/tables/table_survey.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/data/sets/tables/table_reader.h"
#include "engine/data/tensors/csv_reader.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Words of a column that is not named a category.  More would be as many inputs of the net.
constexpr size_t kMostWords = 1000;
// So few are words, however few rows there are.
constexpr int64_t kFewWords = 20;

enum class ColumnRole { kValue, kIndex, kText, kLabel, kOther };

// 1,234.5 or 12 %: a reader would take it for a number.
bool IsNearNumber(std::string_view cell) {
  if (cell.find_first_of("0123456789") == cell.npos) return false;  // at once
  const std::string plain = absl::StrReplaceAll({cell.data(), cell.size()}, {{",", ""},
                                                                             {".", ""},
                                                                             {"'", ""},
                                                                             {" ", ""},
                                                                             {"%", ""},
                                                                             {"$", ""},
                                                                             {"€", ""},
                                                                             {"\u00a0", ""}});
  double number = 0;
  return !plain.empty() && plain.size() < cell.size() && absl::SimpleAtod(plain, &number);
}

// In the order of their numbers if all are numbers, else of their bytes.
std::vector<std::string> Sorted(const absl::flat_hash_set<std::string>& words, char decimal) {
  std::vector<std::pair<double, std::string>> sorted;
  bool numbers = true;
  for (const std::string& word : words) {
    const std::optional<double> number = NumberOf(word, decimal);
    numbers = numbers && number.has_value();
    sorted.emplace_back(number.value_or(0), word);
  }
  if (!numbers) {
    for (auto& [number, word] : sorted) number = 0;
  }
  std::ranges::sort(sorted);
  std::vector<std::string> in_order;
  for (auto& [number, word] : sorted) in_order.push_back(std::move(word));
  return in_order;
}

// What the training rows have in one column.
class SurveyedColumn {
 public:
  SurveyedColumn(std::string name, ColumnRole role, bool category)
      : name_(std::move(name)), role_(role), category_(category) {}

  const std::string& name() const { return name_; }
  ColumnRole role() const { return role_; }
  bool all_numbers() const { return numbers_ == present_; }

  void Add(const TableReader& reader, size_t column) {
    ++rows_;
    const std::string_view cell = reader.cell(column);
    if (cell.empty()) {
      if (missing_at_.empty()) missing_at_ = reader.where();
      return;
    }
    ++present_;
    if (const std::optional<double> number = reader.number(column)) {
      ++numbers_;
      sum_ += *number;
    } else {
      if (IsNearNumber(cell)) ++near_numbers_;
      if (word_at_.empty()) {
        word_at_ = reader.where();
        word_ = std::string(cell);
      }
    }
    // The words of numbers are of use where a later cell is none.
    if (role_ == ColumnRole::kText ||
        (role_ == ColumnRole::kValue && !category_ && words_.size() > kMostWords)) {
      return;
    }
    words_.insert(reader.word(column));
  }

  int64_t missing() const { return rows_ - present_; }
  absl::Status MissingError(const std::string& what) const {
    return Error(missing_at_, absl::StrCat("expected a value, got none", what));
  }

  absl::StatusOr<TableColumn> Column(const TableConfig& config) const {
    using ColumnKind = TableColumn::ColumnKind;
    TableColumn column{.name = name_};
    if (role_ == ColumnRole::kText) {
      column.kind = ColumnKind::kText;
      return column;
    }
    if (present_ == 0) {
      return Error(missing_at_,
                   absl::StrFormat("no training row has a value; write ignore: %s", Shown(name_)));
    }
    if (role_ == ColumnRole::kValue)
      column.indicator = config.missing() == TableConfig::INDICATOR && missing() > 0;
    if (role_ == ColumnRole::kValue && !category_) {
      RETURN_IF_ERROR(CheckKind(config));
      if (all_numbers()) {
        column.mean = static_cast<double>(sum_ / static_cast<long double>(present_));
        return column;
      }
    }
    column.kind = role_ == ColumnRole::kIndex ? ColumnKind::kIndex : ColumnKind::kCategory;
    column.words = Sorted(words_, config.decimal()[0]);
    return column;
  }

  absl::StatusOr<std::vector<std::string>> Classes(const TableConfig& config) const {
    if (words_.size() == 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("column %s: all rows are of class %s; there must be two classes",
                          Shown(name_), Shown(*words_.begin())));
    }
    if (IsTooMany()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "column %s: expected classes, for a net input of type LABEL, got %d different values in "
          "%d rows; give the input type: REAL to predict a number",
          Shown(name_), words_.size(), rows_));
    }
    return Sorted(words_, config.decimal()[0]);
  }

 private:
  absl::Status Error(const std::string& where, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(where, ": column ", Shown(name_), ": ", what));
  }
  bool IsTooMany() const {
    return static_cast<int64_t>(words_.size()) > std::max(kFewWords, rows_ / 2);
  }

  // Of a column that is not named: whether it is clear what it is.
  absl::Status CheckKind(const TableConfig& config) const {
    if (all_numbers()) return absl::OkStatus();
    if (numbers_ + near_numbers_ > present_ / 2) {
      const std::string decimal = DecimalAdvice(config, word_);
      return Error(
          word_at_,
          absl::StrFormat(
              "expected a number, as %d of %d rows have, got %s%s", numbers_, rows_, Shown(word_),
              !decimal.empty() ? decimal
                               : absl::StrFormat("; write missing_as: %s if that is no value, or "
                                                 "category: %s if all are words",
                                                 Shown(word_), Shown(name_))));
    }
    if (words_.size() <= kMostWords && !IsTooMany()) return absl::OkStatus();
    return Error(
        word_at_,
        absl::StrFormat("expected at most %d different words, an input each, got %s%d in "
                        "%d rows, such as %s; write ignore, text, index or category: "
                        "%s",
                        std::min<int64_t>(kMostWords, std::max(kFewWords, rows_ / 2)),
                        words_.size() > kMostWords ? "more than " : "",
                        std::min(words_.size(), kMostWords), rows_, Shown(word_), Shown(name_)));
  }

  std::string name_;
  ColumnRole role_;
  bool category_;  // named so
  int64_t rows_ = 0, present_ = 0, numbers_ = 0, near_numbers_ = 0;
  long double sum_ = 0;  // of numbers: rounded once as a double, but for enormous tables
  std::string missing_at_, word_at_, word_;  // the first of each
  absl::flat_hash_set<std::string> words_;
};

// What a column is for.  "": it is one of "columns", if those are not named.
ColumnRole RoleOf(const TableConfig& config, const std::string& name, bool label) {
  const auto has = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (has(config.label())) return label ? ColumnRole::kLabel : ColumnRole::kOther;
  if (has(config.index())) return ColumnRole::kIndex;
  if (has(config.text())) return ColumnRole::kText;
  if (has(config.column())) return ColumnRole::kValue;
  for (const std::string& other : {config.group(), config.time(), config.weight()}) {
    if (name == other) return ColumnRole::kOther;
  }
  return ColumnRole::kValue;
}

// Errors if a value is missing that must be there.
absl::Status CheckMissing(const std::vector<SurveyedColumn>& columns, const TableConfig& config) {
  const SurveyedColumn* first = nullptr;
  std::vector<std::string> others;
  for (const SurveyedColumn& column : columns) {
    if (column.missing() == 0 || column.role() == ColumnRole::kOther) continue;
    if (column.role() == ColumnRole::kLabel) {
      return column.MissingError(absl::StrFormat(
          ", as in %d rows; leave rows out that have nothing to predict", column.missing()));
    }
    if (first != nullptr) others.push_back(Shown(column.name()));
    if (first == nullptr) first = &column;
  }
  if (first == nullptr || config.missing() != TableConfig::REFUSE) return absl::OkStatus();
  if (others.size() > 10) others.resize(10);
  return first->MissingError(absl::StrFormat(
      ", as in %d rows%s; write missing: MEAN, ZERO or INDICATOR", first->missing(),
      others.empty() ? "" : absl::StrCat(" (also in columns ", absl::StrJoin(others, ", "), ")")));
}

}  // namespace

absl::StatusOr<TableSurvey> SurveyTable(const std::vector<std::string>& files,
                                        const TableConfig& config, std::optional<LabelKind> label,
                                        const std::vector<bool>& held) {
  const bool labelled = label != LabelKind::kNone;
  std::vector<std::string> names;
  for (const auto* named :
       {&config.column(), &config.category(), &config.index(), &config.text()}) {
    for (const std::string& name : *named) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  if (labelled) names.insert(names.end(), config.label().begin(), config.label().end());
  const bool all = config.column_size() == 0;
  if (all && config.has_group()) names.push_back(config.group());
  if (all && config.has_time()) names.push_back(config.time());
  if (all && config.has_weight()) names.push_back(config.weight());
  ASSIGN_OR_RETURN(TableReader reader, TableReader::Open(files, config, names, all));

  std::vector<SurveyedColumn> columns;
  for (const std::string& name : reader.names()) {
    const auto& categories = config.category();
    columns.emplace_back(name, RoleOf(config, name, labelled),
                         std::ranges::find(categories, name) != categories.end());
  }
  TableSurvey survey{.fit = {.missing = config.missing(), .columns = {}, .labels = {}},
                     .unnamed = reader.unnamed()};
  TokenCounts counts;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) break;
    const auto row = static_cast<size_t>(survey.rows++);
    const bool is_held = row < held.size() && held[row];
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].role() == ColumnRole::kOther) continue;
      if (is_held && columns[i].role() != ColumnRole::kLabel) continue;
      columns[i].Add(reader, i);
      if (columns[i].role() != ColumnRole::kText) continue;
      const std::string text(reader.cell(i));
      RETURN_IF_ERROR(ForEachToken(text, TokenKind::kLowerWords,
                                   [&](std::string_view token) { ++counts[std::string(token)]; }));
    }
  }
  if (survey.rows == 0) return absl::InvalidArgumentError(absl::StrCat(files[0], ": no row in it"));
  RETURN_IF_ERROR(CheckMissing(columns, config));

  TableFit& fit = survey.fit;
  const auto find = [&](const std::string& name) -> const SurveyedColumn& {
    return *std::ranges::find(columns, name, &SurveyedColumn::name);
  };
  const auto add = [&](const SurveyedColumn& column) -> absl::Status {
    ASSIGN_OR_RETURN(fit.columns.emplace_back(), column.Column(config));
    return absl::OkStatus();
  };
  for (const SurveyedColumn& column : columns) {
    if (column.role() == ColumnRole::kValue) RETURN_IF_ERROR(add(column));
  }
  for (const std::string& name : config.index()) RETURN_IF_ERROR(add(find(name)));
  for (const std::string& name : config.text()) RETURN_IF_ERROR(add(find(name)));
  if (config.text_size() > 0) fit.vocabulary = Vocabulary::Of(counts, config.words());
  if (!labelled || config.label_size() == 0) return survey;
  fit.labels.assign(config.label().begin(), config.label().end());
  const SurveyedColumn& first = find(fit.labels[0]);
  fit.label_kind = label                                            ? *label
                   : fit.labels.size() == 1 && !first.all_numbers() ? LabelKind::kClass
                                                                    : LabelKind::kReal;
  if (fit.label_kind == LabelKind::kClass) {
    ASSIGN_OR_RETURN(fit.classes, first.Classes(config));
  }
  return survey;
}

absl::StatusOr<int64_t> CountRows(const std::vector<std::string>& files,
                                  const TableConfig& config) {
  ASSIGN_OR_RETURN(TableReader reader, TableReader::Open(files, config, {}));
  for (int64_t rows = 0;; ++rows) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (more) continue;
    if (rows > 0) return rows;
    return absl::InvalidArgumentError(absl::StrCat(files[0], ": no row in it"));
  }
}

}  // namespace gyre
