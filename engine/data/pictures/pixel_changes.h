// pixel_changes.h: random changes of a training picture's pixels, [height, width, channels] bytes.
// A change depends on the draw alone.  Pure functions.  Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/sample_draw.h"

namespace gyre {

// All off by default.  Fields are as in AugmentationConfig (models/schema/trainer.proto).
struct PixelChanges {
  double rotate = 0;  // degrees each way, about the centre; zeros move in
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  double gray = 0;
  double blur = 0, least_sigma = 0, most_sigma = 0;  // probability, pixels
  double noise = 0, lighting = 0;
  double erase = 0, least_area = 0, most_area = 0, least_aspect = 0;  // probability, shares
  std::vector<uint8_t> erased = {};  // what is written there, a value a channel

  bool any() const;
};

// Changes pixels in place, in the order of the fields.
//   rotate               bilinear
//   brightness to hue    in random order, each by a factor from 1 - x to 1 + x, or turns of -x to x
//   noise                a normal deviate of its own for each byte, of values from 0 to 1
//   lighting             one colour for all pixels
//   erase                a window.  It is left out where ten attempts do not fit
// Grey pictures take no saturation, hue, gray or lighting.  Alpha takes rotate, blur and erase
// only.
// Preconditions: 1, 3 or 4 channels.  With `erase`, `erased` has a value for each channel, and
// least_aspect is from 0, excluded, to 1.
// Source: torchvision's v2 on tensors of bytes: RandomRotation, ColorJitter, RandomGrayscale,
// GaussianBlur, RandomErasing.  Lighting: Krizhevsky et al. 2012, section 4.1.
void ChangePixels(const PixelChanges& changes, const SampleDraw& draw, int64_t height,
                  int64_t width, int channels, uint8_t* pixels);
// Turns a mask [height, width] as its picture, by the nearest pixel.  Nothing else changes it.
void ChangeMask(const PixelChanges& changes, const SampleDraw& draw, int64_t height, int64_t width,
                uint8_t* mask);

}  // namespace gyre
