// jpeg2000_size.h: the size of a JPEG 2000 by its header, and which kinds are read.  Pure
// functions. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

struct Jpeg2000Size {
  PictureHeader header;
  int64_t tiles = 1;
  int64_t parts = 1;  // of a tile's code blocks, one for each layer of quality, or a few more
};

// Errors: DataLoss for a header that is cut off or broken, or claims far more than the file has.
// InvalidArgument for a kind that is not read: samples of other depths than 8 and 16 bits, signed,
// or subsampled; grey with alpha; more than 2^12 tiles, or 2^17 code blocks a tile, which take
// memory.
// Source: ITU-T T.800 sections A.5.1 and I.4.
Refusal ReadJpeg2000Size(std::string_view file, Jpeg2000Size& size);

}  // namespace gyre
