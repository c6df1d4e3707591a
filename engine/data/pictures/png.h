// png.h: PNGs by libpng: all colour types and depths, transparent colours, interlaced or not.
// Private to the room: use picture.h.  Pure functions.  Any thread.
//
// What is noticed of a file that is no longer whole:
//   noticed      no IEND, wherever the file was cut, and a chunk whose CRC-32 differs, anywhere
//   noticed      deflate data that libpng refuses before the window's last row
//   noticed      an Adler-32 that differs, if the window has the last row
//   not noticed  what only a wrong encoder writes, with right CRC-32s: such data below the window,
//                and indices beyond the palette, which are black
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Of the error of a mask, which goes on with what it is.
inline constexpr char kMaskExpected[] =
    "expected a mask, a PNG with a palette or with grey of at most 8 bits, whose pixels are "
    "numbers; "
    "got ";

// Reads the size and eXIf's orientation, and checks the CRC-32 of every chunk.  Decodes nothing.
// Errors: DataLoss as above.  InvalidArgument for a side of more than 1,000,000 pixels, which
// libpng refuses.
// Source: PNG specification, second edition, sections 5 and 11.2.2.
absl::StatusOr<PictureHeader> ReadPngHeader(std::string_view file);

// Decodes a window of stored pixels, that is before they are turned, to [stored.height,
// stored.width, channels].  Colours are as stored: gamma and colour profiles are ignored.
//   1, 2, 4 bits   of grey: times 255, 85, 17
//   16 bits        rounded to 8, each colour and alpha, before alpha is blended
//   tRNS           alpha: of a palette's colours, or 0 of the one colour that it names, by all bits
//   APNG           its still picture
//   indices        numbers of the palette, even beyond its end, or of grey, as stored.  No tRNS
// Rows below the window are not decoded, but in an interlaced file all but the last pass.  Memory
// is a row.
// Errors: DataLoss as above.  InvalidArgument for indices of colours, alpha or 16 bits.
// Precondition: `header` is ReadPngHeader's of this file, and the window lies within it.
absl::Status DecodePng(std::string_view file, const PictureHeader& header, const Window& stored,
                       const PixelFormat& format, uint8_t* to);

}  // namespace gyre
