// other_fixture.h: pictures of formats that libgyre_imgcodecs.so reads, and what comes of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/data/pictures/other_format.h"
#include "tests/data/pictures/pixels_fixture.h"

namespace gyre {

struct OtherPicture {
  std::string file;
  std::vector<Rgba> pixels;
};

inline void ExpectOther(const OtherPicture& picture, int64_t height, int64_t width,
                        std::mt19937_64* random) {
  ExpectPixels(&DecodeOther, picture.file, ReadOtherHeader(picture.file), picture.pixels, height,
               width, random);
}

// Of the header, or else of decoding all.
inline absl::Status ErrorOfOther(const std::string& file) {
  const auto header = ReadOtherHeader(file);
  if (!header.ok()) return header.status();
  return DecodeWindow(&DecodeOther, file, *header, {0, 0, header->height, header->width}, {})
      .status();
}

// A value up to `most` as one up to 255.
inline int Shown(uint32_t value, uint32_t most) {
  return static_cast<int>(std::lround(value * 255. / most));
}

}  // namespace gyre
