// bmp.h: BMPs, row by row.  OpenCV's reader darkens 16 bits a pixel, drops alpha, and comes with
// 140 libraries in 45 MB.  Pure functions.  Any thread.
#pragma once

#include <string_view>

#include "engine/data/pictures/imgcodecs/decoding.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// The size.
// Errors: DataLoss for a broken header.  InvalidArgument for a kind that is not read: 16 bits a
// pixel, alpha, unusual masks, JPEG or PNG inside.
// Source: BITMAPINFOHEADER, BITMAPV4HEADER, Bitmap Compression (Microsoft).
Refusal ReadBmpHeader(std::string_view file, PictureHeader& header);

// Calls `row` with each row of the window, from the top: red, green, blue.  Colours that a palette
// lacks are black.  Pixels that a run-length code skips have its first colour.
// Memory: a row.  With a run-length code a byte a pixel of the picture.
// Errors: DataLoss for a file that is cut off, and for runs that leave the picture.
// Precondition: ReadBmpHeader takes the file, with this header.
Refusal DecodeBmp(std::string_view file, const PictureHeader& header, const Window& stored,
                  RowFunction row);

}  // namespace gyre
