// picture.h: files of pictures as bytes [height, width, channels].  Pure functions.  Any thread.
// JPEG, PNG and WebP are read by the formats' own libraries.  Further ones are read by
// other_format.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace gyre {

// A rectangle of pixels.
struct Window {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

enum class PictureFormat { kJpeg, kPng, kWebp, kOther };

struct PictureHeader {
  PictureFormat format = PictureFormat::kOther;
  int64_t height = 0, width = 0;  // as shown
  int orientation = 1;            // of Exif, 1 to 8: how stored pixels are turned to be shown
  const char* kind = "";          // for people: "grey", "colour 16-bit".  Not of kOther
};

// How pixels become bytes.
struct PixelFormat {
  int channels = 3;                               // 1: grey, 3: red, green, blue, 4: and alpha
  std::array<uint8_t, 3> background = {0, 0, 0};  // behind what is transparent, but for 4 channels
  // 1 channel of a mask: numbers as the file stores them, indices of a palette or grey, not scaled.
  bool indices = false;
};

// Reads what a file says of its picture, by its signature, whatever its name.
// Errors: InvalidArgument for a file that is empty or no picture, or has more than `most_pixels`.
// DataLoss for a broken header.  Messages are for after a file's name, such as "holds no picture".
absl::StatusOr<PictureHeader> ReadPictureHeader(std::string_view file, int64_t most_pixels);

// Decodes a window of the picture as shown to `to`, [window.height, window.width, channels].  It
// has the bits that a decoding of all would have there.  Grey is made of colours by BT.601, 16
// bits are rounded to 8, CMYK is multiplied out.  `to` is overwritten even if decoding fails.
// Precondition: the window lies within the picture.
// Errors: DataLoss for a file that is truncated or damaged, even where its library goes on.
// InvalidArgument for a mask that is no PNG with a palette or grey of at most 8 bits: other formats
// lose or change numbers.
absl::Status DecodePicture(std::string_view file, const PictureHeader& header, const Window& window,
                           const PixelFormat& format, uint8_t* to);

// Reads the whole file and returns no pixel, so that damage below a window shows, and of a JPEG
// data that no pixel is made of.  Those of some cameras have such data, and can be decoded. Errors:
// those of DecodePicture.
absl::Status CheckPicture(std::string_view file, const PictureHeader& header,
                          const PixelFormat& format);

}  // namespace gyre
