#include "engine/data/tensors/csv_reader.h"

#include <utf8proc.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "models/schema/text_encoding.h"

namespace gyre {
namespace {

constexpr size_t kBlock = size_t{1} << 16;

bool EndsLine(char c) { return c == '\n' || c == '\r'; }

}  // namespace

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::Open(const std::string& path,
                                                           char separator) {
  ASSIGN_OR_RETURN(auto source, ByteSource::OpenFile(path));
  std::unique_ptr<CsvReader> reader(new CsvReader(path, std::move(source)));
  GYRE_CHECK(csv_init(&reader->parser_, CSV_STRICT | CSV_STRICT_FINI) == 0);
  csv_set_delim(&reader->parser_, static_cast<unsigned char>(separator));
  csv_set_blk_size(&reader->parser_, 4096);  // by which a long cell grows
  RETURN_IF_ERROR(reader->Fill().status());
  const auto unmarked = WithoutMark(reader->block_);
  if (!unmarked.ok()) return Annotate(unmarked.status(), path);
  reader->at_ = reader->block_.size() - unmarked->size();
  return reader;
}

CsvReader::~CsvReader() { csv_free(&parser_); }

absl::Status CsvReader::Error(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ":", begin_, ": ", what));
}

absl::Status CsvReader::QuoteError(int64_t last_line) const {
  return Error(absl::StrCat(
      "a quote within a cell, or one that is not closed",
      last_line > begin_ ? absl::StrCat(" (the record goes on to line ", last_line, ")") : ""));
}

absl::StatusOr<bool> CsvReader::Fill() {
  if (at_ < block_.size()) return true;
  block_.resize(kBlock);
  at_ = 0;
  const auto bytes = source_->Read(block_.data(), kBlock);
  block_.resize(bytes.value_or(0));
  RETURN_IF_ERROR(bytes.status());
  return !block_.empty();
}

std::string_view CsvReader::Line() const {
  const std::string_view rest = std::string_view(block_).substr(at_);
  const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
  return line.substr(0, std::min(line.find('\r'), line.size() - 1) + 1);
}

void CsvReader::Pass(size_t bytes) {
  if (bytes == 0) return;
  at_ += bytes;
  const char last = block_[at_ - 1];
  if (EndsLine(last) && !(last == '\n' && bytes == 1 && last_ == '\r')) ++line_;
  last_ = last;
}

absl::StatusOr<std::optional<char>> CsvReader::PassBlankLines() {
  const char separator = static_cast<char>(csv_get_delim(&parser_));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return std::nullopt;
    const std::string_view line = Line();
    size_t blanks = 0;
    while (blanks < line.size() && line[blanks] != separator &&
           (line[blanks] == ' ' || line[blanks] == '\t' || EndsLine(line[blanks]))) {
      ++blanks;
    }
    Pass(blanks);  // of the line that counts, too: they are no part of its first cell
    if (blanks < line.size()) return line[blanks];
  }
}

absl::StatusOr<std::optional<std::string>> CsvReader::ReadComment(char mark) {
  ASSIGN_OR_RETURN(const std::optional<char> first, PassBlankLines());
  begin_ = line_;
  if (first != mark) return std::nullopt;
  std::string comment;
  for (bool more = true; more && line_ == begin_;) {
    const std::string_view line = Line();
    // What is kept of a long one is enough for any use.
    comment += line.substr(0, kBlock - std::min(kBlock, comment.size()));
    Pass(line.size());
    ASSIGN_OR_RETURN(more, Fill());
  }
  while (!comment.empty() && EndsLine(comment.back())) comment.pop_back();
  return comment;
}

absl::StatusOr<bool> CsvReader::Next() {
  cells_.clear();
  ends_.clear();
  complete_ = false;
  if (ended_) return false;
  const auto add = [](void* bytes, size_t size, void* reader) {
    auto& self = *static_cast<CsvReader*>(reader);
    self.cells_.append(static_cast<const char*>(bytes), size);
    self.ends_.push_back(static_cast<uint32_t>(self.cells_.size()));
  };
  const auto end = [](int, void* reader) { static_cast<CsvReader*>(reader)->complete_ = true; };
  ASSIGN_OR_RETURN(const std::optional<char> first, PassBlankLines());
  begin_ = line_;
  for (uint64_t bytes = 0; first && !complete_;) {
    ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) break;
    const std::string_view line = Line();
    const bool good = csv_parse(&parser_, line.data(), line.size(), add, end, this) == line.size();
    if (!good && csv_error(&parser_) == CSV_EPARSE) return QuoteError(line_);
    if (!good) return absl::ResourceExhaustedError(absl::StrCat(path_, ": no memory for a record"));
    bytes += line.size();
    Pass(line.size());
    if (bytes <= kMostRecordBytes) continue;
    return Error(absl::StrCat("expected a record of at most ", kMostRecordBytes >> 20,
                              " MiB, got more, up to line ", line_,
                              "; perhaps a quote is not closed"));
  }
  if (!complete_) {
    ended_ = true;
    if (csv_fini(&parser_, add, end, this) != 0) {
      return QuoteError(EndsLine(last_) ? line_ - 1 : line_);
    }
  }
  return complete_;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    if (static_cast<unsigned char>(text[0]) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    utf8proc_int32_t character = 0;
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                        static_cast<utf8proc_ssize_t>(text.size()), &character);
    if (bytes <= 0) return false;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return true;
}

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 60;
  size_t bytes = std::min(kMost, text.size());
  const auto continues = [&](size_t at) { return (text[at] & 0xc0) == 0x80; };  // a character
  while (bytes > kMost - 4 && bytes < text.size() && continues(bytes)) --bytes;
  const std::string beginning(text.substr(0, bytes));
  return absl::StrCat(
      "\"", IsUtf8(beginning) ? absl::Utf8SafeCEscape(beginning) : absl::CEscape(beginning), "\"",
      bytes < text.size() ? "..." : "");
}

}  // namespace gyre
