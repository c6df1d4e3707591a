// csv_cell.h: text as a cell of a CSV file.  Pure.
#pragma once

#include <string>

namespace gyre {

// In quotes where it must be.  Source: RFC 4180.
inline std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

}  // namespace gyre
