// text_pnm.h: PNM files whose numbers are texts (P1, P2, P3).  OpenCV's reader holds all pixels,
// and refuses a text without a last newline.  Pure functions.  Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/data/pictures/imgcodecs/imgcodecs.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/imgcodecs/tiff.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

bool IsTextPnm(OtherFormat format, std::string_view file);

constexpr int kMostPnmDigits = 1 << 30;  // all that there are

// Takes the next number off a PNM's header or text.  Blanks and comments come before it.  -1: there
// is none.
int64_t NextPnmNumber(std::string_view& rest, int most_digits = kMostPnmDigits);

// Calls `row` with each row of the window, from the top, scaled to 8 bits.
// Memory: a row.
// Errors: DataLoss for too few numbers or too large ones, down to the window's last row.
// Precondition: ReadStoredPicture (stored_size.h) takes the file, with this header.
Refusal DecodeTextPnm(std::string_view file, const PictureHeader& header, const Window& stored,
                      RowFunction row);

}  // namespace gyre
