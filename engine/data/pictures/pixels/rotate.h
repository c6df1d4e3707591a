// rotate.h: turns a picture about its centre, in place.  Pure functions.  Any thread.
#pragma once

#include <cstdint>

namespace gyre {

// Bilinear between four pixels.  Nearest makes no new values, for masks.
enum class TurnFilter { kLinear, kNearest };

// Turns pixels [height, width, channels] counter-clockwise.  Zeros move in.  Coordinates are
// rounded to 1/32 of a pixel.
// Preconditions: 1 to 4 channels.  Extents are at most 32766, because coordinates have 16 bits.
// Source: OpenCV's warpAffine.
void Rotate(double degrees, TurnFilter filter, int64_t height, int64_t width, int channels,
            uint8_t* pixels);

}  // namespace gyre
