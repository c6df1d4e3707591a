// pnm.h: PBM, PGM and PPM, binary or as text (P1 to P6), row by row.  OpenCV's reader holds all
// pixels, leaves values unscaled, and refuses a text without a last newline.  Pure functions.
// Any thread.
#pragma once

#include <string_view>

#include "engine/data/pictures/imgcodecs/decoding.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// The size.
// Errors: DataLoss for a header that is cut off or broken.
// Source: pbm(5), pgm(5), ppm(5) of Netpbm.
Refusal ReadPnmHeader(std::string_view file, PictureHeader& header);

// Calls `row` with each row of the window, from the top, scaled to 8 bits.  Of a text all rows down
// to the window's last are read.
// Memory: a row.
// Errors: DataLoss for too few bytes, and, down to the window's last row, for too few numbers of a
// text and for numbers above the largest that the header says.
// Precondition: ReadPnmHeader takes the file, with this header.
Refusal DecodePnm(std::string_view file, const PictureHeader& header, const Window& stored,
                  RowFunction row);

}  // namespace gyre
