// format_pixels.h: pixels of a decoded row become those of the input: grey or colour, alpha
// blended. One text for all formats, so that the same pixels give the same bytes.  Private to the
// room. Pure functions.  Any thread.
#pragma once

#include <cstdint>

#include "engine/data/pictures/picture.h"

namespace gyre {

// Writes `count` pixels of `from` as format.channels bytes each, `step` pixels apart.
// from_channels: 1 grey, 2 grey and alpha, 3 red, green, blue, 4 red, green, blue and alpha.  Alpha
// is not premultiplied.
//   alpha  each colour is round((c a + background (255 - a)) / 255), then grey.  4 channels keep it
//   grey   (19595 red + 38470 green + 7471 blue + 2^15) / 2^16, rounded down
// Source: ITU-R BT.601-7 section 2.5.1.  Bits as Pillow's paste with a mask and convert("L").
void FormatPixels(const uint8_t* from, int from_channels, int64_t count, const PixelFormat& format,
                  uint8_t* to, int64_t step = 1);

}  // namespace gyre
