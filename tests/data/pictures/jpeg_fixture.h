// jpeg_fixture.h: JPEGs of every kind, written and read whole by libjpeg, and Exif data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/check.h"

// clang-format off
#include <jpeglib.h>  // after <cstdio>
// clang-format on

namespace gyre {

// The defaults are those of most photographs.
struct JpegKind {
  int height = 1, width = 1;
  J_COLOR_SPACE stored = JCS_YCbCr;
  std::array<int, 2> sampling = {2, 2};   // of the first component, horizontal and vertical
  std::array<int, 2> sampling2 = {1, 1};  // of the second
  bool progressive = false, arithmetic = false;
  int restart = 0;  // MCUs between restart markers
  int quality = 85;
  std::vector<jpeg_scan_info> scans = {};  // in place of libjpeg's own
  std::string exif = "";                   // of APP1
};

// A sequential file's scan for each component; a progressive one's for each coefficient of each.
inline std::vector<jpeg_scan_info> ScanEachComponent(int components) {
  std::vector<jpeg_scan_info> scans;
  for (int i = 0; i < components; ++i) scans.push_back({1, {i}, 0, DCTSIZE2 - 1, 0, 0});
  return scans;
}
inline std::vector<jpeg_scan_info> ScanEachCoefficient(int components) {
  std::vector<jpeg_scan_info> scans;
  for (int i = 0; i < components; ++i)
    for (int k = 0; k < DCTSIZE2; ++k) scans.push_back({1, {i}, k, k, 0, 0});
  return scans;
}

// TIFF data whose first directory says `orientation`, as type 3 (SHORT) or 4 (LONG).
inline std::string ExifData(uint32_t orientation, bool big_endian, uint32_t type = 3) {
  std::string data = big_endian ? "MM" : "II";
  const auto put = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i)
      data += static_cast<char>(value >> (8 * (big_endian ? size - 1 - i : i)));
  };
  put(42, 2), put(8, 4);                            // the directory's offset
  put(2, 2);                                        // its entries
  put(0x010f, 2), put(2, 2), put(1, 4), put(0, 4);  // Make, empty
  put(0x0112, 2), put(type, 2), put(1, 4);
  put(orientation, type == 3 ? 2 : 4);
  if (type == 3) put(0, 2);
  put(0, 4);  // no further directory
  return data;
}

inline int Components(J_COLOR_SPACE colors) {
  return colors == JCS_GRAYSCALE ? 1 : colors == JCS_CMYK || colors == JCS_YCCK ? 4 : 3;
}

// Noise upon waves: neighbours differ, so that a wrong neighbour shows, but not without bounds.
inline std::vector<uint8_t> RandomPixels(size_t count, std::mt19937_64* random) {
  std::vector<uint8_t> pixels(count);
  int value = 128;
  for (uint8_t& pixel : pixels) {
    value = std::min(255, std::max(0, value + static_cast<int>((*random)() % 81) - 40));
    pixel = static_cast<uint8_t>(value);
  }
  return pixels;
}

// pixels: [height, width, components], grey, RGB or CMYK as libjpeg takes it (stored as it is).
inline std::string WriteJpeg(const JpegKind& kind, const std::vector<uint8_t>& pixels) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);  // ends the test where the fixture is wrong
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_height = static_cast<JDIMENSION>(kind.height);
  jpeg.image_width = static_cast<JDIMENSION>(kind.width);
  jpeg.input_components = Components(kind.stored);
  jpeg.in_color_space = jpeg.input_components == 1   ? JCS_GRAYSCALE
                        : jpeg.input_components == 3 ? JCS_RGB
                                                     : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, kind.stored);
  jpeg_set_quality(&jpeg, kind.quality, TRUE);
  jpeg.comp_info[0].h_samp_factor = kind.sampling[0];
  jpeg.comp_info[0].v_samp_factor = kind.sampling[1];
  if (jpeg.num_components > 1) {
    jpeg.comp_info[1].h_samp_factor = kind.sampling2[0];
    jpeg.comp_info[1].v_samp_factor = kind.sampling2[1];
  }
  if (jpeg.num_components == 4) {  // K has the resolution of the first
    jpeg.comp_info[3].h_samp_factor = kind.sampling[0];
    jpeg.comp_info[3].v_samp_factor = kind.sampling[1];
  }
  jpeg.restart_interval = static_cast<unsigned>(kind.restart);
  jpeg.arith_code = kind.arithmetic ? TRUE : FALSE;
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  if (!kind.scans.empty()) {
    jpeg.scan_info = kind.scans.data();
    jpeg.num_scans = static_cast<int>(kind.scans.size());
  }
  jpeg_start_compress(&jpeg, TRUE);
  if (!kind.exif.empty()) {
    const std::string app1 = std::string("Exif\0\0", 6) + kind.exif;
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(app1.data()),
                      static_cast<unsigned>(app1.size()));
  }
  const size_t row_bytes = static_cast<size_t>(kind.width) * jpeg.input_components;
  GYRE_CHECK(pixels.size() == row_bytes * static_cast<size_t>(kind.height));
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data() + jpeg.next_scanline * row_bytes);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

inline std::string RandomJpeg(const JpegKind& kind, std::mt19937_64* random) {
  return WriteJpeg(
      kind, RandomPixels(static_cast<size_t>(kind.height) * kind.width * Components(kind.stored),
                         random));
}

inline J_COLOR_SPACE OutputColors(int channels) {
  return channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_EXT_RGBA;
}

// All pixels in stored order, [height, width, channels of `colors`].
inline std::vector<uint8_t> ReadWholeJpeg(std::string_view file, J_COLOR_SPACE colors) {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const uint8_t*>(file.data()), file.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = colors;
  jpeg_start_decompress(&jpeg);
  const size_t row_bytes = static_cast<size_t>(jpeg.output_width) * jpeg.output_components;
  std::vector<uint8_t> pixels(row_bytes * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels.data() + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_destroy_decompress(&jpeg);
  return pixels;
}

}  // namespace gyre
