// other_format.h: TIFF, BMP, JPEG 2000 and PNM (PBM, PGM, PPM) by libgyre_imgcodecs.so, which is
// loaded at first use (imgcodecs/imgcodecs.h).  Private to the room: use picture.h.  Any thread.
//
// What is noticed of a file that is no longer whole:
//   noticed      that it was cut, but for bytes behind the last pixel, and digits of a PNM text's
//                last number
//   noticed      of TIFF: damage of the window's strips that libtiff or libjpeg complain or warn of
//   not noticed  changed bytes of pixels that are not packed.  These formats have no checksums
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Reads the size and TIFF's orientation, and decodes nothing.
// Errors: InvalidArgument for a file of no known signature, and for kinds that are not read
// (imgcodecs/bmp.h, jpeg2000_size.h, tiff.h).  DataLoss for a broken header.  Unavailable if the
// library is missing, which is no fault of the file.
absl::StatusOr<PictureHeader> ReadOtherHeader(std::string_view file);

// Decodes a window of stored pixels, that is before they are turned, to [stored.height,
// stored.width, channels].  16 bits are rounded to 8, alpha is blended.  Of TIFF and JPEG
// 2000 only strips, tiles and code blocks of the window are decoded, of a PNM text all rows down to
// the window's last, of a BMP's run-length code all.
// Memory beside `to`: see imgcodecs/bmp.h, jpeg2000.h, pnm.h and tiff.h.
// Errors: DataLoss as above, ResourceExhausted for lack of memory.
// Precondition: `header` is ReadOtherHeader's of this file, and the window lies within it.
absl::Status DecodeOther(std::string_view file, const PictureHeader& header, const Window& stored,
                         const PixelFormat& format, uint8_t* to);

}  // namespace gyre
