// table_windows.h: the series of a table in samples of equal length.  Pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/data/sets/memory_dataset.h"
#include "engine/data/sets/tables/table_rows.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// What a table's samples are made by.
struct TableUse {
  const TableConfig& config;
  const std::vector<std::string>& files;  // one or more
  bool train;
  bool label_of_window;      // LabelShape's
  std::string weight_input;  // "": the net takes none
};

// Adds samples of config.window rows, and the arrays "reset" and "length".  Rows beyond a series'
// end are 0, and integers of the label are -1.  Takes the rows' arrays. Errors: InvalidArgument for
// two rows of a series with one time, and, to train, for a window that is longer than every series.
// ResourceExhausted for more than the machine's memory.
absl::Status AddWindows(TableRows& rows, const TableUse& use, MemoryDataset& dataset);

}  // namespace gyre
