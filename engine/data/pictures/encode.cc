#include "engine/data/pictures/encode.h"

// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::StatusOr<std::string> PngOf(const Pixels& pixels) {
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(pixels.width);
  image.height = static_cast<png_uint_32>(pixels.height);
  image.format = pixels.channels == 1   ? PNG_FORMAT_GRAY
                 : pixels.channels == 3 ? PNG_FORMAT_RGB
                                        : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data, 0, nullptr) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("no PNG: ", image.message));
  }
  file.resize(bytes);
  return file;
}

// libjpeg's default for an error ends the process, but none can come: the memory grows, and sizes
// are checked here.
absl::StatusOr<std::string> JpegOf(const Pixels& pixels, int quality) {
  if ((pixels.channels != 1 && pixels.channels != 3) || pixels.height < 1 || pixels.width < 1 ||
      pixels.height > JPEG_MAX_DIMENSION || pixels.width > JPEG_MAX_DIMENSION) {
    return absl::InvalidArgumentError(absl::StrCat("no JPEG can have ", pixels.height, " x ",
                                                   pixels.width, " pixels of ", pixels.channels,
                                                   " channels"));
  }
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_width = static_cast<JDIMENSION>(pixels.width);
  jpeg.image_height = static_cast<JDIMENSION>(pixels.height);
  jpeg.input_components = pixels.channels;
  jpeg.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  for (int64_t y = 0; y < pixels.height; ++y) {
    auto* row = const_cast<JSAMPROW>(pixels.data + y * pixels.width * pixels.channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(memory), bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return file;
}

}  // namespace gyre
