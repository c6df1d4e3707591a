// jpeg2000.h: JPEG 2000 by OpenJPEG, in slices of rows.  OpenCV's reader decodes all, in 16 bytes a
// pixel.  Pure functions.  Any thread.
#pragma once

#include <string_view>

#include "engine/data/pictures/imgcodecs/decoding.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Calls `row` with each row of the window, from the top, scaled to 8 bits.  Decodes only code
// blocks of the window.
// Memory: the file's bytes again, at most 64 MiB of tiles or code blocks (jpeg2000_size.h), and
// about 30 bytes a pixel of a slice and its neighbouring code blocks.  A slice has 2^16 pixels, or
// a 64th of the picture.  Of several tiles, a palette or moved channels it has 2^19, or a 32nd.
// Errors: DataLoss for what OpenJPEG cannot read.  InvalidArgument for colours that are neither
// grey nor red, green, blue.
// Precondition: ReadJpeg2000Size takes the file, with this header.
Refusal DecodeJpeg2000(std::string_view file, const PictureHeader& header, const Window& stored,
                       RowFunction row);

}  // namespace gyre
