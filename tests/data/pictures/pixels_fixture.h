// pixels_fixture.h: what a decoder's pixels are expected to be, by plain formulas.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/pictures/picture.h"

namespace gyre {

using Rgba = std::array<int, 4>;  // 0 to 255, alpha last

using DecodeFunction = absl::Status(std::string_view file, const PictureHeader& header,
                                    const Window& stored, const PixelFormat& format, uint8_t* to);

// All channels, over two backgrounds.
inline const PixelFormat kFormats[] = {
    {.channels = 3},
    {.channels = 1},
    {.channels = 4},
    {.channels = 3, .background = {200, 7, 90}},
    {.channels = 1, .background = {200, 7, 90}},
};

// TIFF data of one directory that says 6: the first row is shown on the right.
inline const std::string kExifSix("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
                                  26);

inline std::vector<uint8_t> Formatted(const std::vector<Rgba>& pixels, const PixelFormat& format) {
  std::vector<uint8_t> bytes;
  for (Rgba pixel : pixels) {
    if (format.channels != 4) {
      for (int i = 0; i < 3; ++i) {
        const double alpha = pixel[3] / 255.;
        pixel[i] =
            static_cast<int>(std::lround(pixel[i] * alpha + format.background[i] * (1 - alpha)));
      }
    }
    if (format.channels == 1) {
      // The weights in 2^-16, so that they have the sum 1.
      const int grey = (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 32768) / 65536;
      bytes.push_back(static_cast<uint8_t>(grey));
    } else {
      for (int i = 0; i < format.channels; ++i) bytes.push_back(static_cast<uint8_t>(pixel[i]));
    }
  }
  return bytes;
}

// The window of pixels [?, width, channels].
template <typename T>
std::vector<T> Cut(const std::vector<T>& pixels, int64_t width, const Window& window,
                   int channels = 1) {
  std::vector<T> cut;
  for (int64_t y = window.top; y < window.top + window.height; ++y) {
    const auto from = pixels.begin() + (y * width + window.left) * channels;
    cut.insert(cut.end(), from, from + window.width * channels);
  }
  return cut;
}

// A window that has now and then one row or column.
inline Window RandomWindow(int64_t height, int64_t width, std::mt19937_64* random) {
  const auto below = [&](int64_t bound) { return static_cast<int64_t>((*random)() % bound); };
  Window window{below(height), below(width), 1, 1};
  if (below(4) > 0) window.height += below(height - window.top);
  if (below(4) > 0) window.width += below(width - window.left);
  return window;
}

// The most significant first, or last.
inline std::string IntegerBytes(uint32_t value, int size, bool big_endian) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    bytes += static_cast<char>(value >> (8 * (big_endian ? size - 1 - i : i)));
  }
  return bytes;
}

// The window's bytes, and none beside them are touched.
inline absl::StatusOr<std::vector<uint8_t>> DecodeWindow(DecodeFunction* decode,
                                                         std::string_view file,
                                                         const PictureHeader& header,
                                                         const Window& window,
                                                         const PixelFormat& format) {
  constexpr size_t kGuard = 64;
  const size_t size = static_cast<size_t>(window.height * window.width * format.channels);
  std::vector<uint8_t> bytes(kGuard + size + kGuard, 0xa5);
  const absl::Status status = decode(file, header, window, format, bytes.data() + kGuard);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(bytes[i], 0xa5);
    EXPECT_EQ(bytes[kGuard + size + i], 0xa5);
  }
  if (!status.ok()) return status;
  return std::vector<uint8_t>(bytes.begin() + kGuard, bytes.begin() + kGuard + size);
}

// The whole picture and random windows of it are `pixels` [height, width], in all formats.
inline void ExpectPixels(DecodeFunction* decode, std::string_view file,
                         const absl::StatusOr<PictureHeader>& header,
                         const std::vector<Rgba>& pixels, int64_t height, int64_t width,
                         std::mt19937_64* random) {
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->height, height);
  ASSERT_EQ(header->width, width);
  for (const PixelFormat& format : kFormats) {
    for (int i = 0; i < 4; ++i) {
      const Window window =
          i == 0 ? Window{0, 0, height, width} : RandomWindow(height, width, random);
      const auto decoded = DecodeWindow(decode, file, *header, window, format);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ASSERT_EQ(*decoded, Formatted(Cut(pixels, width, window), format))
          << format.channels << " channels of " << window.height << " x " << window.width
          << " from row " << window.top << " and column " << window.left;
    }
  }
}

}  // namespace gyre
