// png_fixture.h: PNGs of every kind, written by libpng, and what their pixels mean.
#pragma once

#include <png.h>
#include <zlib.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/check.h"
#include "tests/data/pictures/pixels_fixture.h"

namespace gyre {

struct PngKind {
  int64_t height = 1, width = 1;
  int color_type = PNG_COLOR_TYPE_RGB, depth = 8;
  bool interlaced = false;
  bool transparent = false;  // has tRNS
};

inline int SamplesOf(int color_type) {
  switch (color_type) {
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return 2;
    case PNG_COLOR_TYPE_RGB:
      return 3;
    case PNG_COLOR_TYPE_RGB_ALPHA:
      return 4;
    default:
      return 1;
  }
}

// A random picture as a file and as pixels.
struct PngPicture {
  std::string file;
  std::vector<Rgba> pixels;
  std::vector<uint32_t> values;  // as stored
};

inline std::string BigEndianBytes(uint32_t value) { return IntegerBytes(value, 4, true); }

inline std::string PngChunkBytes(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const uLong sum =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndianBytes(static_cast<uint32_t>(data.size())) + body +
         BigEndianBytes(static_cast<uint32_t>(sum));
}

// Inserts a chunk before the first one of type `before`.
inline std::string WithPngChunk(std::string file, const std::string& before,
                                const std::string& type, const std::string& data) {
  const size_t at = file.find(before);
  GYRE_CHECK(at != file.npos);
  return file.insert(at - 4, PngChunkBytes(type, data));
}

inline PngPicture RandomPng(const PngKind& kind, std::mt19937_64* random) {
  const int samples = SamplesOf(kind.color_type);
  const uint32_t most = (1u << kind.depth) - 1;
  const auto count = static_cast<size_t>(kind.height * kind.width);
  std::vector<uint32_t> values(count * samples);
  for (uint32_t& value : values) value = static_cast<uint32_t>((*random)()) & most;

  PngPicture picture;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &picture.file,
      [](png_structp to, png_bytep bytes, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<char*>(bytes), size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<uint32_t>(kind.width), static_cast<uint32_t>(kind.height),
               kind.depth, kind.color_type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
  std::vector<png_color> palette(most < 256 ? most + 1 : 1);
  std::vector<uint8_t> palette_alpha(palette.size() - palette.size() / 4);  // others are opaque
  for (png_color& color : palette) {
    const uint64_t bits = (*random)();
    color = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8),
             static_cast<uint8_t>(bits >> 16)};
  }
  for (uint8_t& alpha : palette_alpha) alpha = static_cast<uint8_t>((*random)());
  // The first pixel's values are transparent, where one value is.
  png_color_16 named = {};
  if (kind.color_type == PNG_COLOR_TYPE_GRAY) {
    named.gray = static_cast<uint16_t>(values[0]);
  } else if (kind.color_type == PNG_COLOR_TYPE_RGB) {
    named.red = static_cast<uint16_t>(values[0]);
    named.green = static_cast<uint16_t>(values[1]);
    named.blue = static_cast<uint16_t>(values[2]);
    // A neighbour that differs in the lowest bit alone is opaque.
    if (count > 1) {
      values[3] = values[0] ^ 1, values[4] = values[1], values[5] = values[2];
    }
  }
  const bool has_palette = kind.color_type == PNG_COLOR_TYPE_PALETTE;
  if (has_palette) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  if (kind.transparent) {
    png_set_tRNS(png, info, palette_alpha.data(), static_cast<int>(palette_alpha.size()), &named);
  }
  png_write_info(png, info);

  std::vector<std::vector<uint8_t>> rows(static_cast<size_t>(kind.height));
  std::vector<png_bytep> pointers;
  size_t next = 0;
  for (auto& row : rows) {
    row.resize((kind.width * samples * kind.depth + 7) / 8);
    for (int64_t i = 0; i < kind.width * samples; ++i) {
      const uint32_t value = values[next++];
      const int64_t bit = i * kind.depth;
      if (kind.depth == 16) {
        row[2 * i] = static_cast<uint8_t>(value >> 8), row[2 * i + 1] = static_cast<uint8_t>(value);
      } else {
        row[bit / 8] |= static_cast<uint8_t>(value << (8 - kind.depth - bit % 8));
      }
    }
    pointers.push_back(row.data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);

  const auto shown = [&](uint32_t value) {
    return static_cast<int>(std::lround(value * 255. / most));
  };
  for (size_t i = 0; i < count; ++i) {
    const uint32_t* value = &values[i * samples];
    Rgba pixel = {shown(value[0]), shown(value[0]), shown(value[0]), 255};
    if (has_palette) {
      const png_color& color = palette[value[0]];
      pixel = {color.red, color.green, color.blue, 255};
      if (kind.transparent && value[0] < palette_alpha.size()) pixel[3] = palette_alpha[value[0]];
    }
    if (samples >= 3) pixel[1] = shown(value[1]), pixel[2] = shown(value[2]);
    if (samples % 2 == 0) pixel[3] = shown(value[samples - 1]);
    if (kind.transparent && kind.color_type == PNG_COLOR_TYPE_GRAY && value[0] == named.gray) {
      pixel[3] = 0;
    }
    if (kind.transparent && kind.color_type == PNG_COLOR_TYPE_RGB && value[0] == named.red &&
        value[1] == named.green && value[2] == named.blue) {
      pixel[3] = 0;
    }
    picture.pixels.push_back(pixel);
  }
  picture.values = std::move(values);
  return picture;
}

}  // namespace gyre
