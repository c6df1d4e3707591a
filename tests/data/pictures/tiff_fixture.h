// tiff_fixture.h: TIFFs of every kind, written by libtiff, and what their pixels mean.
#pragma once

#include <tiffio.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/runtime/check.h"
#include "tests/data/pictures/other_fixture.h"
#include "tests/data/temp_folder.h"

namespace gyre {

struct TiffKind {
  int height = 7, width = 10;
  int samples = 3, depth = 8;
  uint16_t photometric = PHOTOMETRIC_RGB, packing = COMPRESSION_NONE, alpha = 0xffff;
  bool separate = false, tiled = false, big_endian = false, big = false;
  int rows_per_strip = 3;
  uint16_t orientation = 0;
};

inline OtherPicture RandomTiff(const TiffKind& kind, std::mt19937_64* random) {
  const uint32_t most = (1u << kind.depth) - 1;
  const TempFolder folder;
  const std::string path = folder / "a.tif";
  std::string mode = kind.big_endian ? "wb" : "wl";
  if (kind.big) mode += '8';
  TIFF* const tiff = TIFFOpen(path.c_str(), mode.c_str());
  GYRE_CHECK(tiff != nullptr);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, kind.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, kind.height);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, kind.samples);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, kind.depth);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, kind.photometric);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, kind.packing);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG,
               kind.separate ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  if (kind.alpha != 0xffff) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &kind.alpha);
  if (kind.orientation != 0) TIFFSetField(tiff, TIFFTAG_ORIENTATION, kind.orientation);
  std::vector<uint16_t> red(most < 256 ? most + 1 : 1), green(red), blue(red);
  for (size_t i = 0; i < red.size(); ++i) {
    red[i] = static_cast<uint16_t>((*random)()), green[i] = static_cast<uint16_t>((*random)());
    blue[i] = static_cast<uint16_t>((*random)());
  }
  if (kind.photometric == PHOTOMETRIC_PALETTE) {
    TIFFSetField(tiff, TIFFTAG_COLORMAP, red.data(), green.data(), blue.data());
  }
  const int tile = 16;
  if (kind.tiled) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, kind.rows_per_strip);
  }

  const auto count = static_cast<size_t>(kind.height * kind.width * kind.samples);
  std::vector<uint32_t> values(count);
  for (uint32_t& value : values) value = static_cast<uint32_t>((*random)()) & most;
  if (kind.alpha == EXTRASAMPLE_ASSOCALPHA) {  // no colour exceeds alpha
    for (size_t i = 0; i < count; ++i) {
      const uint32_t alpha = values[i - i % kind.samples + kind.samples - 1];
      values[i] = std::min(values[i], alpha);
    }
  }
  // The samples of row y from column x on, `across` pixels, as they are stored.
  const auto packed = [&](int y, int x, int across, int plane) {
    std::vector<uint8_t> row(static_cast<size_t>((across * kind.samples * kind.depth + 7) / 8));
    int bit = 0;
    for (int i = x; i < x + across; ++i) {
      for (int c = 0; c < kind.samples; ++c) {
        if (kind.separate && c != plane) continue;
        const bool inside = y < kind.height && i < kind.width;
        const uint32_t value =
            inside ? values[static_cast<size_t>((y * kind.width + i) * kind.samples + c)] : 0;
        if (kind.depth == 16) {
          const auto sample = static_cast<uint16_t>(value);
          std::memcpy(&row[static_cast<size_t>(bit / 8)], &sample, 2);
        } else {
          row[static_cast<size_t>(bit / 8)] |=
              static_cast<uint8_t>(value << (8 - kind.depth - bit % 8));
        }
        bit += kind.depth;
      }
    }
    row.resize(static_cast<size_t>((bit + 7) / 8));
    return row;
  };
  for (int plane = 0; plane < (kind.separate ? kind.samples : 1); ++plane) {
    if (kind.tiled) {
      for (int top = 0; top < kind.height; top += tile) {
        for (int left = 0; left < kind.width; left += tile) {
          std::vector<uint8_t> data;
          for (int y = 0; y < tile; ++y) {
            const auto row = packed(top + y, left, tile, plane);
            data.insert(data.end(), row.begin(), row.end());
          }
          GYRE_CHECK(TIFFWriteTile(tiff, data.data(), left, top, 0, plane) >= 0);
        }
      }
    } else {
      for (int y = 0; y < kind.height; ++y) {
        auto row = packed(y, 0, kind.width, plane);
        GYRE_CHECK(TIFFWriteScanline(tiff, row.data(), y, static_cast<uint16_t>(plane)) >= 0);
      }
    }
  }
  TIFFClose(tiff);

  OtherPicture picture;
  picture.file = ReadBytes(path);
  for (size_t i = 0; i < count; i += static_cast<size_t>(kind.samples)) {
    const uint32_t* value = &values[i];
    const auto shown = [&](int c) { return Shown(value[c], most); };
    Rgba pixel;
    if (kind.photometric == PHOTOMETRIC_PALETTE) {
      // The high byte is what libtiff, and everybody else, shows.
      pixel = {red[*value] >> 8, green[*value] >> 8, blue[*value] >> 8, 255};
    } else if (kind.photometric == PHOTOMETRIC_SEPARATED) {
      const int key = 255 - shown(3);
      pixel = {(255 - shown(0)) * key / 255, (255 - shown(1)) * key / 255,
               (255 - shown(2)) * key / 255, 255};
    } else if (kind.photometric == PHOTOMETRIC_RGB) {
      pixel = {shown(0), shown(1), shown(2), 255};
    } else {
      // Of 16 bits of grey, libtiff takes the upper ones.
      const int value8 = kind.depth == 16 ? static_cast<int>(value[0] >> 8) : shown(0);
      const int grey = kind.photometric == PHOTOMETRIC_MINISWHITE ? 255 - value8 : value8;
      pixel = {grey, grey, grey, 255};
    }
    if (kind.alpha == EXTRASAMPLE_UNASSALPHA || kind.alpha == EXTRASAMPLE_ASSOCALPHA) {
      pixel[3] = shown(kind.samples - 1);
    }
    if (kind.alpha == EXTRASAMPLE_ASSOCALPHA) {
      for (int c = 0; c < 3 && pixel[3] != 0; ++c) {
        pixel[c] = std::min(255, (pixel[c] * 255 + pixel[3] / 2) / pixel[3]);
      }
    }
    picture.pixels.push_back(pixel);
  }
  return picture;
}

inline const TiffKind kTiffKinds[] = {
    {},
    {.packing = COMPRESSION_LZW},
    {.packing = COMPRESSION_ADOBE_DEFLATE},
    {.packing = COMPRESSION_PACKBITS},
    {.big_endian = true},
    {.big = true},
    {.separate = true},
    {.tiled = true},
    {.height = 40, .width = 35, .tiled = true},
    {.height = 40, .width = 35, .separate = true, .tiled = true},
    {.height = 40, .width = 35, .depth = 16, .packing = COMPRESSION_LZW, .tiled = true},
    {.depth = 16},
    {.depth = 16, .separate = true},
    {.depth = 16, .big_endian = true},
    {.height = 1, .width = 1},
    {.rows_per_strip = 100},
    {.samples = 1, .photometric = PHOTOMETRIC_MINISBLACK},
    {.samples = 1, .depth = 1, .photometric = PHOTOMETRIC_MINISBLACK},
    {.samples = 1, .depth = 1, .photometric = PHOTOMETRIC_MINISWHITE},
    {.samples = 1,
     .depth = 1,
     .photometric = PHOTOMETRIC_MINISWHITE,
     .packing = COMPRESSION_CCITTFAX4},
    {.samples = 1, .depth = 2, .photometric = PHOTOMETRIC_MINISBLACK},
    {.samples = 1, .depth = 4, .photometric = PHOTOMETRIC_MINISBLACK},
    {.samples = 1, .depth = 16, .photometric = PHOTOMETRIC_MINISBLACK},
    {.samples = 1, .photometric = PHOTOMETRIC_MINISWHITE},
    {.samples = 1, .depth = 16, .photometric = PHOTOMETRIC_MINISWHITE},
    {.samples = 1, .photometric = PHOTOMETRIC_PALETTE},
    {.samples = 1, .depth = 4, .photometric = PHOTOMETRIC_PALETTE},
    {.samples = 4, .photometric = PHOTOMETRIC_SEPARATED},
    {.samples = 4, .alpha = EXTRASAMPLE_UNASSALPHA},
    {.samples = 4, .alpha = EXTRASAMPLE_ASSOCALPHA},
    {.samples = 4, .alpha = EXTRASAMPLE_UNSPECIFIED},
    {.samples = 4, .depth = 16, .alpha = EXTRASAMPLE_UNASSALPHA},
    {.samples = 4, .alpha = EXTRASAMPLE_UNASSALPHA, .separate = true},
    {.samples = 2, .photometric = PHOTOMETRIC_MINISBLACK, .alpha = EXTRASAMPLE_UNASSALPHA},
};

}  // namespace gyre
