// color_changes.h: changes of a picture's colours, in place, as torchvision's v2 makes them of
// bytes. Pixels are [count, channels] bytes: 1 grey, 3 red, green, blue, 4 and alpha.  Alpha stays.
// Pure functions.  Any thread.
#pragma once

#include <array>
#include <cstdint>

namespace gyre {

struct ColorPixels {
  int64_t count = 0;
  int channels = 3;
  uint8_t* data = nullptr;
};

// Multiplies by a factor of 0 or more, and rounds down.
void ChangeBrightness(double factor, const ColorPixels& pixels);
// Moves values from the picture's mean grey level: 0 is that level, 1 the picture.  Rounds down.
void ChangeContrast(double factor, const ColorPixels& pixels);
// Moves colours from their grey level: 0 is grey, 1 the picture.  Rounds down.  Grey stays.
void ChangeSaturation(double factor, const ColorPixels& pixels);
// Turns the hue of HSV by `turns`, -0.5 to 0.5.  Grey stays.
void ChangeHue(double turns, const ColorPixels& pixels);
// Makes all colours the grey level 0.2989 r + 0.587 g + 0.114 b, rounded down.
void MakeGray(const ColorPixels& pixels);
// Adds to red, green and blue, and rounds to the nearest.  Grey stays.
void AddColor(const std::array<double, 3>& colour, const ColorPixels& pixels);

}  // namespace gyre
