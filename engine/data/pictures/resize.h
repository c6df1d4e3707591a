// resize.h: resamples bytes [height, width, channels].  Pure functions.  Any thread.
#pragma once

#include <cstdint>

#include "engine/data/pictures/picture.h"
#include "engine/data/pictures/pixels/axis_weights.h"
#include "engine/data/pictures/pixels/resample.h"

namespace gyre {

// Writes the `part` of `from` resized to [height, width] to `to`, [part.height, part.width,
// channels].  Values are rounded to the nearest.
// Preconditions: no extent is 0, and the part lies within height and width.
// Source: kAntialiased, Pillow's ImagingResample with BILINEAR.  kArea and kLinear, OpenCV.
void Resize(const Pixels& from, ResizeFilter filter, int64_t height, int64_t width,
            const Window& part, uint8_t* to);

}  // namespace gyre
