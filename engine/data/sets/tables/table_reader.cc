#include "engine/data/sets/tables/table_reader.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/check.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

// Far beyond any table.  A damaged file may have a comma in each byte.
constexpr size_t kMostColumns = 100'000;

// Why a cell is no text, or "".  UTF-16 without a mark is full of zeros.
std::string NoText(std::string_view cell) {
  if (!IsUtf8(cell)) return "not UTF-8; write the file as UTF-8";
  return cell.find('\0') == cell.npos ? "" : "a byte of 0; write the file as UTF-8";
}

std::string NoColumn(const std::string& name, const std::vector<std::string>& header) {
  for (const char* separator : {";", "\\t", "|", ","}) {
    const char c = separator[0] == '\\' ? '\t' : separator[0];
    if (header.size() != 1 || header[0].find(c) == std::string::npos) continue;
    return absl::StrFormat(
        "no column %s among %s; write separator: \"%s\" if that separates columns", Shown(name),
        Shown(header[0]), separator);
  }
  return Unknown("column", name, header);
}

}  // namespace

std::optional<double> NumberOf(std::string_view text, char decimal) {
  double number = 0;
  std::string pointed;
  if (decimal != '.') {
    if (text.find('.') != text.npos) return std::nullopt;
    pointed = std::string(text);
    std::ranges::replace(pointed, decimal, '.');
    text = pointed;
  }
  // SimpleAtod reads 0x1f, which is a word.
  if (text.find_first_of("xX") != text.npos) return std::nullopt;
  if (!absl::SimpleAtod({text.data(), text.size()}, &number)) return std::nullopt;
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

absl::StatusOr<TableReader> TableReader::Open(std::vector<std::string> files,
                                              const TableConfig& config,
                                              std::vector<std::string> names, bool all) {
  GYRE_CHECK(!files.empty());
  TableReader reader(std::move(files), config, std::move(names), all);
  RETURN_IF_ERROR(reader.OpenNext());
  return reader;
}

absl::Status TableReader::OpenNext() {
  const std::string& separator = config_->separator();
  ASSIGN_OR_RETURN(reader_, CsvReader::Open(files_[next_++], separator[0]));
  ASSIGN_OR_RETURN(const bool any, NextRecord());
  if (!any) return reader_->Error("expected a line of the columns' names, got the file's end");
  return ReadNames();
}

absl::StatusOr<bool> TableReader::NextRecord() {
  for (bool comment = config_->has_comment(); comment;) {
    ASSIGN_OR_RETURN(const auto text, reader_->ReadComment(config_->comment()[0]));
    comment = text.has_value();
  }
  return reader_->Next();
}

absl::Status TableReader::ReadNames() {
  if (reader_->size() > kMostColumns) {
    return reader_->Error(
        absl::StrFormat("expected at most %d columns, got %d", kMostColumns, reader_->size()));
  }
  std::vector<std::string> header;
  std::map<std::string, std::vector<size_t>> positions;
  for (size_t i = 0; i < reader_->size(); ++i) {
    header.emplace_back(reader_->cell(i));
    if (const std::string error = NoText(header[i]); !error.empty()) return reader_->Error(error);
    positions[header[i]].push_back(i);
  }
  if (all_) RETURN_IF_ERROR(TakeAll(header));
  cells_ = header.size();
  positions_.clear();
  for (const std::string& name : names_) {
    const auto found = positions.find(name);
    if (found == positions.end()) {
      return reader_->Error(NoColumn(name, header));
    }
    if (found->second.size() > 1) {
      return reader_->Error(absl::StrCat("two columns ", Shown(name)));
    }
    positions_.push_back(found->second[0]);
  }
  return absl::OkStatus();
}

absl::Status TableReader::TakeAll(const std::vector<std::string>& header) {
  bool numbers = true, counted = true;  // 0, 1, ... are pandas' names
  for (size_t i = 0; i < header.size(); ++i) {
    numbers = numbers && NumberOf(header[i], config_->decimal()[0]).has_value();
    counted = counted && header[i] == absl::StrCat(i);
  }
  if (numbers && !counted) {
    return reader_->Error(absl::StrCat("expected the columns' names, got numbers: ",
                                       Shown(header[0]), "; put a line of names first"));
  }
  const std::set<std::string> ignored(config_->ignore().begin(), config_->ignore().end());
  for (const std::string& name : ignored) {
    if (std::ranges::find(header, name) != header.end()) continue;
    return reader_->Error(NoColumn(name, header));
  }
  std::vector<std::string> names;
  for (const std::string& name : header) {
    if (!name.empty() && !ignored.contains(name)) names.push_back(name);
  }
  if (next_ == 1) {  // the first file
    for (const std::string& name : names_) {
      if (std::ranges::find(names, name) != names.end()) continue;
      return reader_->Error(NoColumn(name, header));
    }
    unnamed_ = std::ranges::count(header, "");
    names_ = names;
    return absl::OkStatus();
  }
  for (const std::string& name : names) {
    if (std::ranges::find(names_, name) != names_.end()) continue;
    return reader_->Error(absl::StrFormat("a column %s, which %s does not have; write ignore: %s",
                                          Shown(name), files_[0], Shown(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TableReader::Next() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, NextRecord());
    if (more) break;
    if (next_ == files_.size()) return false;
    RETURN_IF_ERROR(OpenNext());
  }
  if (reader_->size() != cells_) {
    return reader_->Error(absl::StrFormat(
        "expected %d cells, a value for each name, got %d%s", cells_, reader_->size(),
        reader_->size() > cells_ ? "; a cell with a separator in it needs quotes" : ""));
  }
  for (size_t column = 0; column < positions_.size(); ++column) {
    const std::string error = NoText(reader_->cell(positions_[column]));
    if (!error.empty()) return Error(column, error);
  }
  return true;
}

std::string_view TableReader::cell(size_t column) const {
  const std::string_view cell = reader_->cell(positions_[column]);
  return std::ranges::find(missing_, cell) == missing_.end() ? cell : "";
}

std::optional<double> TableReader::number(size_t column) const {
  return NumberOf(cell(column), config_->decimal()[0]);
}

std::string TableReader::word(size_t column) const {
  std::string word(cell(column));
  const size_t decimal = word.find(config_->decimal()[0]);
  const size_t first = word.starts_with('-') ? 1 : 0;
  const auto digits = [&](size_t begin, size_t end) {
    return begin < end && std::all_of(word.begin() + static_cast<std::ptrdiff_t>(begin),
                                      word.begin() + static_cast<std::ptrdiff_t>(end),
                                      [](char c) { return c >= '0' && c <= '9'; });
  };
  const bool whole = decimal != word.npos && digits(first, decimal) &&
                     digits(decimal + 1, word.size()) &&
                     word.find_first_not_of('0', decimal + 1) == word.npos;
  if (whole) word.resize(decimal);
  return word;
}

std::string TableReader::where() const {
  return absl::StrCat(reader_->path(), ":", reader_->line());
}

absl::Status TableReader::Error(size_t column, const std::string& what) const {
  return reader_->Error(absl::StrCat("column ", Shown(names_[column]), ": ", what));
}

std::string DecimalAdvice(const TableConfig& config, std::string_view cell) {
  const std::string other = config.decimal() == "." ? "," : ".";
  if (cell.find(other) == cell.npos || !NumberOf(cell, other[0])) return "";
  return absl::StrCat("; write decimal: \"", other, "\"");
}

absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string pattern = fs::path(path).filename().string();
  if (pattern.find_first_of("*?") == std::string::npos) return std::vector<std::string>{path};
  const std::string folder = fs::path(path).parent_path().string();
  ASSIGN_OR_RETURN(const Listing listing, List(folder.empty() ? "." : folder, {""}));
  // No other character has a meaning.
  const std::string quoted = absl::StrReplaceAll(pattern, {{"[", "\\["}, {"\\", "\\\\"}});
  std::vector<std::string> files;
  for (const std::string& file : listing.paths) {
    const std::string name = fs::path(file).filename().string();
    if (fnmatch(quoted.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      files.push_back(folder.empty() ? name : file);
    }
  }
  if (files.empty()) return absl::NotFoundError(absl::StrCat(path, ": no file has such a name"));
  return files;
}

}  // namespace gyre
