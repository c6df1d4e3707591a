// rotate.h: turns a picture about its centre, in place.  Pure functions.  Any thread.
#pragma once

#include <cstdint>

namespace gyre {

// Bilinear between four pixels.  Nearest makes no new values, for masks.
enum class TurnFilter { kLinear, kNearest };

// Turns pixels [height, width, channels] counter-clockwise.  Zeros move in.  Where a pixel comes
// from is rounded to 1/32 of a pixel.  The bits are those of OpenCV's warpAffine, of pictures that
// it takes (up to 32766 pixels a side).
// Precondition: 1, 3 or 4 channels.
// Source: Bradski 2000, "The OpenCV Library".
void Rotate(double degrees, TurnFilter filter, int64_t height, int64_t width, int channels,
            uint8_t* pixels);

}  // namespace gyre
