// table_reader.h: the rows of a table's CSV files, by column, as its configuration says that cells
// are read.  Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/tensors/csv_reader.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

class TableReader {
 public:
  // Reads the columns `names`, which each file has, and no others.  If `all`, reads all columns
  // that have a name and are not ignored.  All files then have the same, among them `names`. The
  // configuration must outlive the reader. Errors: those of CsvReader, and InvalidArgument for
  // columns other than expected, or no file.
  static absl::StatusOr<TableReader> Open(std::vector<std::string> files, const TableConfig& config,
                                          std::vector<std::string> names, bool all = false);

  const std::vector<std::string>& names() const { return names_; }
  // Columns without a name, which `all` leaves out: pandas writes its index so.
  int64_t unnamed() const { return unnamed_; }

  // Reads the next row.  Returns false after the last one of the last file.
  // Errors: those of CsvReader, and InvalidArgument for a wrong number of cells, no UTF-8 or a
  // zero.
  absl::StatusOr<bool> Next();

  // Cells of the row, by the index in names().
  std::string_view cell(size_t column) const;  // "": no value
  // The finite number that the cell is, if it is one.
  std::optional<double> number(size_t column) const;
  // The cell as one of its column's words.  A whole number loses its zeros as decimals.
  std::string word(size_t column) const;
  std::string where() const;                 // "file:line", of the row
  size_t file() const { return next_ - 1; }  // the row's, by number
  // InvalidArgument "file:line: column "name": what".
  absl::Status Error(size_t column, const std::string& what) const;

 private:
  TableReader(std::vector<std::string> files, const TableConfig& config,
              std::vector<std::string> names, bool all)
      : files_(std::move(files)),
        config_(&config),
        missing_(config.missing_as().begin(), config.missing_as().end()),
        names_(std::move(names)),
        all_(all) {}

  absl::Status OpenNext();
  absl::Status ReadNames();
  absl::Status TakeAll(const std::vector<std::string>& header);
  absl::StatusOr<bool> NextRecord();

  std::vector<std::string> files_;
  const TableConfig* config_;
  std::vector<std::string> missing_;  // what stands for no value
  std::vector<std::string> names_;
  bool all_;
  int64_t unnamed_ = 0;
  size_t next_ = 0;  // of files_
  std::unique_ptr<CsvReader> reader_;
  size_t cells_ = 0;               // of each record of the file
  std::vector<size_t> positions_;  // of names_ in the file
};

// The finite decimal number that a text is, if it is one.
std::optional<double> NumberOf(std::string_view text, char decimal);

// The advice for a cell that is a number by another decimal: `; write decimal: ","`, or else "".
std::string DecimalAdvice(const TableConfig& config, std::string_view cell);

// The files that a path with * and ? in its last part means, sorted.  Another path is itself.
// Errors: NotFound if there are none.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path);

}  // namespace gyre
