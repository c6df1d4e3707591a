// noise.h: Gaussian noise of a picture's bytes, in place.  A function of the draw.  Any thread.
#pragma once

#include "engine/data/pictures/pixels/color_changes.h"
#include "engine/data/sample_draw.h"

namespace gyre {

// Adds a normal deviate of its own to each byte but alpha, and rounds to the nearest.  `deviation`
// is in units of a byte, 0 to 256.  Deviates are one of 4096 quantiles, within 3.7 deviations.
void AddNoise(double deviation, const SampleDraw& draw, const ColorPixels& pixels);

}  // namespace gyre
