// webp.h: WebPs by libwebp: lossy and lossless, with or without alpha.  Private to the room: use
// picture.h.  Pure functions.  Any thread.
//
// What is noticed of a file that is no longer whole:
//   noticed      that it was cut, wherever
//   noticed      damage that libwebp cannot decode, before the window's last row
//   not noticed  other damage: WebP has no checksum
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Reads the container: the size, and the orientation of chunk EXIF.  Decodes nothing.
// Errors: DataLoss as above.  InvalidArgument for an animation.
// Source: WebP Container Specification; RFC 9649.
absl::StatusOr<PictureHeader> ReadWebpHeader(std::string_view file);

// Decodes a window of stored pixels, that is before they are turned, to [stored.height,
// stored.width, channels].  The bits are those of a decoding of all.
// Memory beside `to`: 4 bytes a pixel of a lossless picture, and those of the window again: 3 bytes
// a pixel, or with alpha 4, from the picture's first row on.  Of a whole picture only if its
// channels are not the format's.
// Errors: DataLoss as above.  ResourceExhausted for lack of memory.
// Precondition: `header` is ReadWebpHeader's of this file, and the window lies within it.
absl::Status DecodeWebp(std::string_view file, const PictureHeader& header, const Window& stored,
                        const PixelFormat& format, uint8_t* to);

}  // namespace gyre
