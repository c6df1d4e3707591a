// opencv_picture.h: BMPs and binary PNM files by OpenCV's imgcodecs.  Any thread.
#pragma once

#include <string_view>

#include "engine/data/pictures/imgcodecs/imgcodecs.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/imgcodecs/tiff.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Decodes all of the picture and calls `row` with each row of the window, from the top, scaled to
// 8 bits.  What OpenCV writes to std::cerr meanwhile is dropped.  Sets OpenCV to one thread, for
// the whole program.
// Memory: 1 to 8 bytes a pixel of the picture.
// Errors: DataLoss if OpenCV cannot read the file.
Refusal DecodeByOpenCv(OtherFormat format, std::string_view file, const PictureHeader& header,
                       const Window& stored, RowFunction row);

}  // namespace gyre
