// text_line.h: a line of text as grey pixels, in OpenCV's own font.  Pure functions.  Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "engine/data/pictures/imgcodecs/refusal.h"

namespace gyre {

// Fills [height, width] with a line in black on white, from the left.  A line that is too wide is
// drawn smaller, and then with "..." for its middle: its end tells as much as its begin.  The font
// has ASCII alone: any other character is "?". Precondition: both extents are 1 or more.
Refusal DrawTextLine(const std::string& text, int64_t height, int64_t width, uint8_t* to);

}  // namespace gyre
