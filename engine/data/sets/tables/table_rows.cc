#include "engine/data/sets/tables/table_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/sets/memory_dataset.h"
#include "engine/data/sets/tables/table_reader.h"
#include "engine/data/tensors/csv_reader.h"
#include "engine/runtime/check.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

using ColumnKind = TableColumn::ColumnKind;

// Counts by column what a note tells.
class Counts {
 public:
  void Add(const std::string& column) { ++counts_[column]; }
  bool empty() const { return counts_.empty(); }
  // "37, of age (30), lot (7)".
  std::string text() const {
    int64_t all = 0;
    std::vector<std::string> names;
    for (const auto& [name, count] : counts_) {
      all += count;
      names.push_back(absl::StrCat(name, " (", count, ")"));
    }
    return absl::StrCat(all, ", of ", Listed(names));
  }

 private:
  std::map<std::string, int64_t> counts_;
};

// The numbers of a column's words, from 0.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {
    for (const std::string& word : words) numbers_.emplace(word, numbers_.size());
  }

  // -1: unknown.
  int32_t Find(const TableReader& reader, size_t column) {
    ++present_;
    const std::string word = reader.word(column);
    const auto found = numbers_.find(word);
    if (found != numbers_.end()) return static_cast<int32_t>(found->second);
    if (++unknown_ == 1) {
      first_ = word;
      where_ = reader.where();
    }
    return -1;
  }

  // Another table, or encoding, gives itself away.  A few rows do not, as one that is predicted.
  absl::Status Check(const std::string& name) const {
    constexpr int64_t kFew = 10;
    if (present_ < kFew || unknown_ <= present_ / 2) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: column %s: expected a word of the training rows, such as %s, got %s, and %d of %d "
        "rows have others",
        where_, Shown(name), Shown(words_[0]), Shown(first_), unknown_, present_));
  }
  std::string Note(const std::string& name) const {
    if (unknown_ == 0) return "";
    return absl::StrFormat(
        "column %s: %d of %d rows have words that no training row has, such as "
        "%s (%s); they count as none",
        Shown(name), unknown_, present_, Shown(first_), where_);
  }

 private:
  const std::vector<std::string>& words_;
  absl::flat_hash_map<std::string, size_t> numbers_;
  int64_t present_ = 0, unknown_ = 0;
  std::string first_, where_;
};

// A time as a number, or of a date the seconds since 1970.
class TimeReader {
 public:
  absl::StatusOr<double> Read(const TableReader& reader, size_t column) {
    const std::string cell(reader.cell(column));
    const std::optional<double> number = reader.number(column);
    absl::Time time;
    const bool date = !number && IsDate(cell, &time);
    if (!number && !date) {
      return reader.Error(column, absl::StrCat("expected a number or a date such as 2024-05-31 or "
                                               "2024-05-31 12:00:00, got ",
                                               Shown(cell)));
    }
    if (dates_ && *dates_ != date) {
      return reader.Error(column, absl::StrCat("expected ", *dates_ ? "a date" : "a number",
                                               ", as in rows before, got ", Shown(cell)));
    }
    dates_ = date;
    return number ? *number : absl::ToDoubleSeconds(time - absl::UnixEpoch());
  }

 private:
  static bool IsDate(const std::string& cell, absl::Time* time) {
    if (cell.size() < 10 || cell[4] != '-' || cell[7] != '-') return false;
    std::string ignored;
    return std::ranges::any_of(
        std::initializer_list<const char*>{"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%E*S",
                                           "%Y-%m-%d %H:%M:%E*S%Ez", "%Y-%m-%d%ET%H:%M",
                                           "%Y-%m-%d%ET%H:%M:%E*S", "%Y-%m-%d%ET%H:%M:%E*S%Ez"},
        [&](const char* format) { return absl::ParseTime(format, cell, time, &ignored); });
  }

  std::optional<bool> dates_;  // what the column has
};

// Reads row after row into the arrays.
class RowFiller {
 public:
  RowFiller(const TableRowsOptions& options, int64_t rows)
      : options_(options),
        config_(options.config),
        fit_(options.fit),
        size_(rows),
        classes_(fit_.classes) {}

  // The columns to be read, in the order in which Row takes them.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const TableColumn& column : fit_.columns) names.push_back(column.name);
    names.insert(names.end(), fit_.labels.begin(), fit_.labels.end());
    if (!options_.weight_input.empty()) names.push_back(config_.weight());
    if (options_.places && config_.has_group()) names.push_back(config_.group());
    if (options_.places && config_.has_time()) names.push_back(config_.time());
    return names;
  }

  // Allocates the arrays.
  absl::Status Begin(const std::string& file) {
    // A row's elements; the double is the widest.
    uint64_t elements =
        static_cast<uint64_t>(fit_.values()) + fit_.columns.size() + fit_.labels.size() + 1;
    for (const TableColumn& column : fit_.columns) {
      if (column.kind == ColumnKind::kText) elements += static_cast<uint64_t>(config_.length());
    }
    RETURN_IF_ERROR(
        CheckFitsMemory(file, elements * sizeof(double) * static_cast<uint64_t>(size_)));
    if (fit_.values() > 0 && options_.wants("columns")) {
      columns_ = Add("columns", NewArray<double>(size_, {fit_.values()}));
    }
    int64_t texts = std::ranges::count(fit_.columns, ColumnKind::kText, &TableColumn::kind);
    for (const TableColumn& column : fit_.columns) {
      words_.emplace_back(column.words);
      inputs_.push_back(kNowhere);
      lengths_.push_back(kNowhere);
      const std::string input = InputNameOf(column.name);
      if (column.kind == ColumnKind::kIndex && options_.wants(input)) {
        inputs_.back() = Add(input, NewArray<int32_t>(size_, {}));
      }
      if (column.kind == ColumnKind::kText) {
        inputs_.back() = Add(input, NewArray<int32_t>(size_, {config_.length()}));
        lengths_.back() = Add(texts == 1 ? "length" : absl::StrCat(input, "_length"),
                              NewArray<int32_t>(size_, {}));
      }
    }
    if (fit_.label_kind != LabelKind::kNone) {
      const bool real = fit_.label_kind == LabelKind::kReal;
      labels_ = Add(options_.label_input, real ? NewArray<double>(size_, options_.label_dims)
                                               : NewArray<int32_t>(size_, options_.label_dims));
      rows_.arrays[labels_].is_label = true;
    }
    if (!options_.weight_input.empty()) {
      weights_ = Add(options_.weight_input, NewArray<double>(size_, {}));
      rows_.arrays[weights_].is_weight = true;
    }
    std::set<std::string> names;
    for (const RowArray& array : rows_.arrays) {
      if (names.insert(array.input).second) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: two columns feed the net input \"%s\"; rename one of them", file, array.input));
    }
    return absl::OkStatus();
  }

  absl::Status Row(const TableReader& reader) {
    size_t column = 0;
    double* values = columns_ == kNowhere ? nullptr : Reals(columns_) + row_ * fit_.values();
    for (; column < fit_.columns.size(); ++column) {
      RETURN_IF_ERROR(CheckThere(reader, column, config_.missing() == TableConfig::REFUSE));
      const ColumnKind kind = fit_.columns[column].kind;
      if (kind == ColumnKind::kText) {
        RETURN_IF_ERROR(Text(reader, column));
      } else if (kind == ColumnKind::kIndex) {
        const bool there = !reader.cell(column).empty();
        const int32_t number = there ? words_[column].Find(reader, column) + 1 : 0;
        if (inputs_[column] != kNowhere) Integers(inputs_[column])[row_] = number;
      } else {
        if (values != nullptr) RETURN_IF_ERROR(Values(reader, column, values));
        if (values != nullptr) values += fit_.columns[column].values();
      }
    }
    const auto labels = static_cast<int64_t>(fit_.labels.size());
    for (int64_t i = 0; i < labels; ++i, ++column) {
      RETURN_IF_ERROR(CheckThere(reader, column, true));
      RETURN_IF_ERROR(Label(reader, column, row_ * labels + i));
    }
    if (weights_ != kNowhere) RETURN_IF_ERROR(Weight(reader, column++));
    if (options_.places) RETURN_IF_ERROR(Place(reader, column));
    rows_.rows_of_files.resize(reader.file() + 1);
    ++rows_.rows_of_files.back();
    ++row_;
    return absl::OkStatus();
  }

  absl::StatusOr<TableRows> End() {
    for (size_t i = 0; i < fit_.columns.size(); ++i) {
      RETURN_IF_ERROR(words_[i].Check(fit_.columns[i].name));
      AddNote(words_[i].Note(fit_.columns[i].name));
    }
    if (!missing_.empty()) {
      AddNote(absl::StrCat("values that are missing: ", missing_.text(),
                           "; missing: ", TableConfig::Missing_Name(config_.missing())));
    }
    if (unknown_words_ > 0 && options_.tells_unknown) {
      AddNote(absl::StrFormat("%d of %d words of texts are not in the vocabulary, such as %s",
                              unknown_words_, all_words_, Shown(unknown_word_)));
    }
    if (cut_ > 0) {
      AddNote(absl::StrFormat("%d texts have more than %d words: their last %d are kept", cut_,
                              config_.length(), config_.length()));
    }
    return std::move(rows_);
  }

  int64_t row() const { return row_; }

 private:
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

  size_t Add(const std::string& input, HostArray array) {
    rows_.arrays.push_back({.input = input, .rows = std::move(array)});
    return rows_.arrays.size() - 1;
  }
  double* Reals(size_t array) { return ElementsOf<double>(rows_.arrays[array].rows); }
  int32_t* Integers(size_t array) { return ElementsOf<int32_t>(rows_.arrays[array].rows); }
  void AddNote(std::string note) {
    if (!note.empty()) rows_.notes.push_back(std::move(note));
  }

  absl::Status CheckThere(const TableReader& reader, size_t column, bool required) {
    if (!reader.cell(column).empty()) return absl::OkStatus();
    if (required) return reader.Error(column, "expected a value, got none");
    missing_.Add(reader.names()[column]);
    return absl::OkStatus();
  }

  absl::StatusOr<double> Number(const TableReader& reader, size_t column,
                                const std::string& advice) const {
    if (const std::optional<double> number = reader.number(column)) return *number;
    const std::string_view cell = reader.cell(column);
    const std::string decimal = DecimalAdvice(config_, cell);
    return reader.Error(column, absl::StrCat("expected a number, got ", Shown(cell),
                                             decimal.empty() ? advice : decimal));
  }

  // Those of "columns".
  absl::Status Values(const TableReader& reader, size_t column, double* values) {
    const TableColumn& fit = fit_.columns[column];
    const bool missing = reader.cell(column).empty();
    if (fit.indicator) values[fit.values() - 1] = missing ? 1 : 0;
    if (fit.kind == ColumnKind::kNumber) {
      if (missing) {
        values[0] = config_.missing() == TableConfig::ZERO ? 0 : fit.mean;
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(values[0], Number(reader, column, ", as the training rows have"));
    } else if (!missing) {
      const int32_t number = words_[column].Find(reader, column);
      if (number >= 0) values[number] = 1;
    }
    return absl::OkStatus();
  }

  // The last words.
  absl::Status Text(const TableReader& reader, size_t column) {
    std::vector<int32_t> words;
    RETURN_IF_ERROR(
        ForEachToken(reader.cell(column), TokenKind::kLowerWords, [&](std::string_view word) {
          words.push_back(fit_.vocabulary->Number(word));
          ++all_words_;
          if (words.back() == 0 && unknown_words_++ == 0) unknown_word_ = word;
        }));
    const int64_t all = static_cast<int64_t>(words.size()), length = config_.length();
    const int64_t kept = std::min(length, all);
    cut_ += kept < all ? 1 : 0;
    std::copy(words.end() - kept, words.end(), Integers(inputs_[column]) + row_ * length);
    Integers(lengths_[column])[row_] = static_cast<int32_t>(kept);
    return absl::OkStatus();
  }

  absl::Status Label(const TableReader& reader, size_t column, int64_t element) {
    if (fit_.label_kind == LabelKind::kClass) {
      const int32_t number = classes_.Find(reader, column);
      Integers(labels_)[element] = number;
      if (number >= 0) return absl::OkStatus();
      return reader.Error(
          column, absl::StrCat("expected a class of the training rows, of ", Listed(fit_.classes),
                               ", got ", Shown(reader.cell(column))));
    }
    const bool real = fit_.label_kind == LabelKind::kReal;
    ASSIGN_OR_RETURN(
        const double number,
        Number(reader, column, real ? "; classes need a net input of type: LABEL" : ""));
    if (real) {
      Reals(labels_)[element] = number;
      return absl::OkStatus();
    }
    if (number != std::floor(number) || std::abs(number) > std::numeric_limits<int32_t>::max()) {
      return reader.Error(column,
                          absl::StrCat("expected an integer, for a net input of type LABEL, "
                                       "got ",
                                       Shown(reader.cell(column))));
    }
    Integers(labels_)[element] = static_cast<int32_t>(number);
    return absl::OkStatus();
  }

  absl::Status Weight(const TableReader& reader, size_t column) {
    RETURN_IF_ERROR(CheckThere(reader, column, true));
    ASSIGN_OR_RETURN(const double weight, Number(reader, column, ""));
    if (weight < 0) {
      return reader.Error(
          column, absl::StrCat("expected a weight of 0 or more, got ", Shown(reader.cell(column))));
    }
    Reals(weights_)[row_] = weight;
    return absl::OkStatus();
  }

  // The row's group and time.
  absl::Status Place(const TableReader& reader, size_t column) {
    int64_t group = 0;
    if (config_.has_group()) {
      RETURN_IF_ERROR(CheckThere(reader, column, true));
      const auto [found, is_new] = groups_.emplace(reader.word(column), groups_.size());
      if (is_new) rows_.group_names.push_back(found->first);
      group = static_cast<int64_t>(found->second);
      ++column;
    }
    rows_.groups.push_back(group);
    double time = static_cast<double>(row_);
    if (config_.has_time()) {
      RETURN_IF_ERROR(CheckThere(reader, column, true));
      ASSIGN_OR_RETURN(time, time_.Read(reader, column));
    }
    rows_.times.push_back(time);
    return absl::OkStatus();
  }

  const TableRowsOptions& options_;
  const TableConfig& config_;
  const TableFit& fit_;
  const int64_t size_;
  int64_t row_ = 0;
  TableRows rows_;
  size_t columns_ = kNowhere, labels_ = kNowhere, weights_ = kNowhere;  // in rows_.arrays
  std::vector<size_t> inputs_, lengths_;                                // likewise, by column
  std::vector<Words> words_;                                            // by column
  Words classes_;
  absl::flat_hash_map<std::string, size_t> groups_;
  TimeReader time_;
  Counts missing_;
  int64_t cut_ = 0, all_words_ = 0, unknown_words_ = 0;
  std::string unknown_word_;  // the first
};

}  // namespace

absl::StatusOr<TableRows> ReadRows(const std::vector<std::string>& files, int64_t rows,
                                   const TableRowsOptions& options) {
  RowFiller filler(options, rows);
  ASSIGN_OR_RETURN(TableReader reader, TableReader::Open(files, options.config, filler.Names()));
  RETURN_IF_ERROR(filler.Begin(files[0]));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (more != (filler.row() < rows)) {
      return absl::DataLossError(absl::StrCat(files[0], ": is being changed"));
    }
    if (!more) return filler.End();
    RETURN_IF_ERROR(filler.Row(reader));
  }
}

}  // namespace gyre
