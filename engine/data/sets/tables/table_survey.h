// table_survey.h: reads a table's training rows once, and finds what each column is.  Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/tables/table_fit.h"

namespace gyre {

struct TableSurvey {
  TableFit fit;
  int64_t rows = 0;     // all, at least one
  int64_t unnamed = 0;  // columns without a name, which are not read
};

// A column that the configuration does not name is of numbers if all its values are, and of words
// if most are none.  Without `label`, one column of words makes classes, and other labels are real.
// The rows that `held` marks, by number, are left out, but for their labels.
// Memory: the different words of a column, at most 1001 of one that is not named.
// Errors: those of TableReader, and InvalidArgument for
//   a column  of numbers with words among them, of nearly as many words as rows, or without values
//   a value   that is missing, where the configuration refuses that, or of a label
//   classes   fewer than two, or nearly as many as rows
absl::StatusOr<TableSurvey> SurveyTable(const std::vector<std::string>& files,
                                        const TableConfig& config, std::optional<LabelKind> label,
                                        const std::vector<bool>& held = {});

// The rows of the files.  Errors: those of TableReader, and InvalidArgument for none.
absl::StatusOr<int64_t> CountRows(const std::vector<std::string>& files, const TableConfig& config);

}  // namespace gyre
