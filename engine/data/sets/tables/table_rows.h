// table_rows.h: the rows of a table's files as arrays, by a fit.  Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/tables/table_fit.h"
#include "engine/data/tensors/array_file.h"

namespace gyre {

// An array for a net input, with an element for each row.
struct RowArray {
  std::string input;
  HostArray rows;         // [rows, ...], F64 or I32
  bool is_label = false;  // the label_input
  bool is_weight = false;
};

struct TableRows {
  std::vector<RowArray> arrays;
  // If options.places.  A row's group is a number from 0 in the order of first rows.  Its time is
  // a number, the seconds of a date, or the row's own number.
  std::vector<int64_t> groups;
  std::vector<double> times;
  std::vector<std::string> group_names;  // by number
  std::vector<int64_t> rows_of_files;    // of each file
  std::vector<std::string> notes;        // for people
};

struct TableRowsOptions {
  const TableConfig& config;
  const TableFit& fit;
  std::string label_input;
  std::vector<int64_t> label_dims = {};  // of a row
  std::string weight_input = {};         // that config.weight feeds.  "": it is not read
  bool places = false;                   // whether to read config.group and config.time
  bool tells_unknown = false;            // notes words of texts that the vocabulary lacks
  // Whether the array of a net input is of use.
  std::function<bool(const std::string& input)> wants;
};

// Reads `rows` rows.
// Errors: those of TableReader, DataLoss for another number of rows, ResourceExhausted for more
// than the machine's memory, and InvalidArgument for
//   a value   missing where config.missing refuses that, or not of its column's kind
//   a weight  below 0
//   a column  of which most words are unknown to the training rows, unless they are a few
//   two columns that feed one input
absl::StatusOr<TableRows> ReadRows(const std::vector<std::string>& files, int64_t rows,
                                   const TableRowsOptions& options);

}  // namespace gyre
