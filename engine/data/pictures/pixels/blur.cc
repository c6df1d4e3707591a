#include "engine/data/pictures/pixels/blur.h"

#include "engine/data/pictures/pixels/axis_weights.h"
#include "engine/data/pictures/pixels/resample.h"

namespace gyre {

void Blur(double sigma, int64_t height, int64_t width, int channels, uint8_t* pixels) {
  if (sigma <= 0) return;
  Resample({height, width, channels, pixels}, BlurWeights(sigma, width), BlurWeights(sigma, height),
           pixels);
}

}  // namespace gyre
