// jpeg.h: JPEGs by libjpeg-turbo: sequential and progressive, Huffman and arithmetic, grey, YCbCr,
// RGB, CMYK and YCCK.  Private to the room: use picture.h.  Pure functions.  Any thread.
//
// What is noticed of a file that is no longer whole:
//   noticed      no end-of-image marker behind the first scan's start: wherever it was cut
//   noticed      damage that the decoder meets before the window's last row (progressive: anywhere)
//   noticed      with `to_end`: bytes of no pixel, if more than libjpeg reads ahead (8)
//   not noticed  damage below the window, bytes changed to another valid code, bytes after the end
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Reads the size and the orientation, up to the first scan.  Decodes nothing.
// Errors: DataLoss for a header that is truncated or broken.  InvalidArgument for 2 components, 12
// bits, lossless and other kinds that libjpeg does not read.
// Source: ITU-T T.81, appendix B.
absl::StatusOr<PictureHeader> ReadJpegHeader(std::string_view file);

// Decodes a window of stored pixels, that is before they are turned, to [stored.height,
// stored.width, channels].  Alpha is 255.  The bits are those of a decoding of all.
//   grey        the luminance as stored.  Of RGB and CMYK, BT.601 of the colours
//   CMYK, YCCK  inverted, as Adobe writes them: red = c k / 255, rounded
// Entropy-coded data above the window is read but not transformed, data below not even read.
// `to_end`, of a window that has the last row: reads the file up to its end-of-image marker, too.
// A progressive file's coefficients are in memory: 2 bytes each.
// Errors: DataLoss and InvalidArgument as above.  DataLoss for more than 100 scans, and for
// arithmetic code that ends 2^24 pixels early.  ResourceExhausted for lack of memory.
// Precondition: `header` is ReadJpegHeader's of this file, and the window lies within it.
absl::Status DecodeJpeg(std::string_view file, const PictureHeader& header, const Window& stored,
                        const PixelFormat& format, uint8_t* to, bool to_end = false);

}  // namespace gyre
