// decoding.h: what the readers of formats share: rows, numbers of headers, and refusals with one
// wording.  Pure functions.  Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// Takes the next row of a window, as 8-bit samples.
using RowFunction = absl::FunctionRef<void(const uint8_t* pixels, int channels)>;

// The integer of 1 to 4 bytes at a position of a file.  Beyond the file's end it is 0.
uint32_t Integer(std::string_view file, size_t at, int size, bool big_endian);

// A sample of 0 to `most`, at most 65535, as 0 to 255, rounded.
inline uint8_t ShownSample(uint32_t sample, uint32_t most) {
  return static_cast<uint8_t>(most == 255 ? sample : (sample * 510 + most) / (2 * most));
}

// Fills in the size.
// Errors: DataLoss for a side below 1 or above 2^20.
Refusal SetSize(const std::string& format, int64_t height, int64_t width, PictureHeader& header);

// InvalidArgument, with advice.
Refusal NotRead(const std::string& kind);

// DataLoss for a file with too few bytes of pixels.
Refusal CheckBytes(const std::string& format, const PictureHeader& header, int64_t expected,
                   int64_t got);

}  // namespace gyre
