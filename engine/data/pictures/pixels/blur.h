// blur.h: Gaussian blur of a picture's bytes, in place.  Pure functions.  Any thread.
#pragma once

#include <cstdint>

namespace gyre {

// Blurs pixels [height, width, channels], also alpha.  `sigma` is in pixels, 0 changes nothing.
// The kernel reaches to ceil(3 sigma).  Pixels beyond an edge mirror those inside.
// Source: torchvision's gaussian_blur with a kernel of 2 ceil(3 sigma) + 1.
void Blur(double sigma, int64_t height, int64_t width, int channels, uint8_t* pixels);

}  // namespace gyre
