// table_fit.h: how a table's rows become numbers, as its training rows say.  A run saves it as
// table.txt.  Immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/vocabulary.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

enum class LabelKind {
  kNone,      // no net input takes one
  kReal,      // numbers
  kClass,     // the number of a class, from its word
  kIntegers,  // of several columns
};

struct TableColumn {
  enum class ColumnKind { kNumber, kCategory, kIndex, kText };
  std::string name;
  ColumnKind kind = ColumnKind::kNumber;
  double mean = 0;         // kNumber: where there is one
  bool indicator = false;  // one value more, 1 where there is none
  // kCategory, kIndex.  In the order of their numbers if all are numbers, else of their bytes.
  std::vector<std::string> words = {};

  // Values of "columns".
  int64_t values() const;
};

struct TableFit {
  TableConfig::Missing missing = TableConfig::REFUSE;
  std::vector<TableColumn> columns;  // those of "columns" first, then kIndex, then kText
  std::vector<std::string> labels;
  LabelKind label_kind = LabelKind::kNone;
  std::vector<std::string> classes = {};      // kClass
  std::optional<Vocabulary> vocabulary = {};  // kText

  // Values of "columns" of a row.
  int64_t values() const;
  // One line a fact, as ParseTableFit reads it.  Names and words have C's escapes.
  std::string text() const;
};

// Errors: InvalidArgument "3: ..." with the number of the line.
absl::StatusOr<TableFit> ParseTableFit(const std::string& text);

// InvalidArgument if `fit`, perhaps of another run, is not of this configuration, or not of a label
// of this kind.
absl::Status CheckTableFit(const TableFit& fit, const TableConfig& config,
                           std::optional<LabelKind> kind);

// The name of a net input that a column feeds.
std::string InputNameOf(const std::string& column);

}  // namespace gyre
