// csv_reader.h: the records of a CSV file, one after another, by libcsv.  A block of the file and
// one record are in memory.  Used by one thread.
//
// The format is RFC 4180, strictly: a quote within a cell without quotes is an error.  Also read
// are gzip, a byte order mark, lines that end in CR LF, LF or CR, and a last line without an end.
// Blank lines are skipped.  Blanks around a cell are no part of it unless they are within its
// quotes.
#pragma once

#include <csv.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/tensors/byte_source.h"

namespace gyre {

class CsvReader {
 public:
  // A record of more bytes, counted in the file, is an error.  A quote that nothing closes would
  // otherwise take the rest of the file into memory.
  static constexpr uint64_t kMostRecordBytes = uint64_t{4} << 20;

  // Precondition: separator is no quote and ends no line.
  // Errors, naming path: those of ByteSource::OpenFile, and InvalidArgument for UTF-16 and UTF-32.
  static absl::StatusOr<std::unique_ptr<CsvReader>> Open(const std::string& path,
                                                         char separator = ',');
  ~CsvReader();

  // If the next line that is not blank begins with `mark`, reads it whole and returns it without
  // its end.  Errors: those of ByteSource::Read.
  absl::StatusOr<std::optional<std::string>> ReadComment(char mark);
  // Reads the next record.  Returns false at the file's end.
  // Errors: those of ByteSource::Read, and InvalidArgument for a misplaced quote or a long record.
  absl::StatusOr<bool> Next();

  // Cells of the record, until the next one is read.
  size_t size() const { return ends_.size(); }
  std::string_view cell(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(cells_).substr(begin, ends_[i] - begin);
  }
  const std::string& path() const { return path_; }
  int64_t line() const { return begin_; }  // of the record's or comment's beginning, from 1
  // InvalidArgument "path:line: what", with the line where the record or the comment begins.
  absl::Status Error(const std::string& what) const;

 private:
  CsvReader(std::string path, std::unique_ptr<ByteSource> source)
      : path_(std::move(path)), source_(std::move(source)) {}

  // Reads a block if none is left.  Returns false at the file's end.
  absl::StatusOr<bool> Fill();
  // The rest of the line in the block, with its end if that is there.
  std::string_view Line() const;
  // Passes bytes of the block.
  void Pass(size_t bytes);
  // Passes blank lines and returns the first byte after them, or none at the file's end.
  absl::StatusOr<std::optional<char>> PassBlankLines();
  absl::Status QuoteError(int64_t last_line) const;

  const std::string path_;
  const std::unique_ptr<ByteSource> source_;
  csv_parser parser_;
  std::string block_;
  size_t at_ = 0;                 // in block_
  char last_ = '\n';              // before at_.  After a CR a LF ends no line
  int64_t line_ = 1, begin_ = 1;  // at at_, and where the record begins
  std::string cells_;             // one after another
  std::vector<uint32_t> ends_;    // in cells_
  bool complete_ = false;         // the record
  bool ended_ = false;            // the file
};

bool IsUtf8(std::string_view text);
// The beginning of a cell or a line as a message can show it, with quotes.
std::string Shown(std::string_view text);

}  // namespace gyre
