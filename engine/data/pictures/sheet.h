// sheet.h: pictures with a caption under each on one sheet, and squares with names, for people.
// Pure functions.  Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

struct CaptionedPicture {
  std::vector<uint8_t> pixels;  // [height, width, 3]
  std::string caption;          // one line
};

// Pictures of one size.  Small ones are drawn several times as large, each pixel as a square.
struct Sheet {
  std::string title;
  int64_t height = 0, width = 0;                // of a picture, >= 1
  std::vector<CaptionedPicture> pictures = {};  // row by row
};

// The bytes of the sheet that a picture takes.
int64_t SheetBytesOf(int64_t height, int64_t width);

// A PNG.  Text is ASCII, other characters are "?".
// Errors: Unavailable if libgyre_imgcodecs.so, which draws text, is missing.
absl::StatusOr<std::string> DrawSheet(const Sheet& sheet);

// A row and a column of cells for each name, such as labels and predictions.
struct NamedSquare {
  std::string rows, columns;       // what they are
  std::vector<std::string> names;  // one or more
  std::vector<double> shares;      // of each cell, row by row: 0 is white, 1 black
};

// A PNG.  Names are beside rows and columns, but where cells are lower than text, or without
// libgyre_imgcodecs.so.
absl::StatusOr<std::string> DrawSquare(const NamedSquare& square);

}  // namespace gyre
