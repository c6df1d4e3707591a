#include "engine/data/pictures/picture.h"

#include <gtest/gtest.h>
#include <png.h>
#include <webp/encode.h>

#include <utility>

#include "tests/data/pictures/jpeg_fixture.h"
#include "tests/data/pictures/png_fixture.h"

namespace gyre {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kMostPixels = 1 << 28;

struct Shown {
  int64_t height = 0, width = 0;
  int channels = 3;
  Bytes pixels;
};

// At [row, column] what is there after exchanging, then reversing columns and rows.
Shown Turned(const Shown& from, bool exchanged, bool columns_reversed, bool rows_reversed) {
  Shown to = from;
  if (exchanged) std::swap(to.height, to.width);
  for (int64_t row = 0; row < to.height; ++row) {
    for (int64_t column = 0; column < to.width; ++column) {
      int64_t y = rows_reversed ? to.height - 1 - row : row;
      int64_t x = columns_reversed ? to.width - 1 - column : column;
      if (exchanged) std::swap(y, x);
      for (int c = 0; c < to.channels; ++c)
        to.pixels[(row * to.width + column) * to.channels + c] =
            from.pixels[(y * from.width + x) * from.channels + c];
    }
  }
  return to;
}

// Exif 2.32: the side on which the stored first row, and the first column, is shown.
Shown Oriented(const Shown& stored, int orientation) {
  switch (orientation) {
    case 2:
      return Turned(stored, false, true, false);  // top, right
    case 3:
      return Turned(stored, false, true, true);  // bottom, right
    case 4:
      return Turned(stored, false, false, true);  // bottom, left
    case 5:
      return Turned(stored, true, false, false);  // left, top
    case 6:
      return Turned(stored, true, true, false);  // right, top
    case 7:
      return Turned(stored, true, true, true);  // right, bottom
    case 8:
      return Turned(stored, true, false, true);  // left, bottom
    default:
      return stored;  // top, left
  }
}

TEST(Picture, IsTurnedAsExifSays) {
  std::mt19937_64 random(1);
  for (const auto& [height, width] :
       {std::pair{1, 1}, {1, 7}, {7, 1}, {64, 64}, {65, 63}, {70, 131}, {33, 200}}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const bool progressive = random() % 2 == 0;
      const std::string file = RandomJpeg({.height = height,
                                           .width = width,
                                           .progressive = progressive,
                                           .exif = ExifData(orientation, progressive)},
                                          &random);
      const auto header = ReadPictureHeader(file, kMostPixels).value();
      for (const int channels : {1, 3, 4}) {
        const Shown shown = Oriented(
            {height, width, channels, ReadWholeJpeg(file, OutputColors(channels))}, orientation);
        ASSERT_EQ(header.height, shown.height);
        ASSERT_EQ(header.width, shown.width);
        for (int i = 0; i < 6; ++i) {
          const Window window = i == 0 ? Window{0, 0, shown.height, shown.width}
                                       : RandomWindow(shown.height, shown.width, &random);
          Bytes pixels(static_cast<size_t>(window.height * window.width * channels));
          ASSERT_EQ(DecodePicture(file, header, window, {.channels = channels}, pixels.data()),
                    absl::OkStatus());
          ASSERT_EQ(pixels, Cut(shown.pixels, shown.width, window, channels))
              << height << " x " << width << " " << orientation;
        }
      }
    }
  }
}

TEST(Picture, FormatIsTheSignatures) {
  std::mt19937_64 random(2);
  const Bytes pixels = RandomPixels(5 * 4 * 3, &random);
  const std::string jpeg = WriteJpeg({.height = 5, .width = 4}, pixels);

  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.height = 5, image.width = 4, image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string png(size, '\0');
  ASSERT_TRUE(png_image_write_to_memory(&image, png.data(), &size, 0, pixels.data(), 0, nullptr));
  png.resize(size);

  uint8_t* bytes = nullptr;
  const size_t webp_size = WebPEncodeLosslessRGB(pixels.data(), 4, 5, 12, &bytes);
  const std::string webp(reinterpret_cast<const char*>(bytes), webp_size);
  WebPFree(bytes);

  for (const auto& [file, format] : {std::pair(jpeg, PictureFormat::kJpeg),
                                     {png, PictureFormat::kPng},
                                     {webp, PictureFormat::kWebp}}) {
    const auto header = ReadPictureHeader(file, kMostPixels).value();
    EXPECT_EQ(header.format, format);
    EXPECT_EQ(header.height, 5);
    EXPECT_EQ(header.width, 4);
    Bytes decoded(pixels.size());
    ASSERT_EQ(DecodePicture(file, header, {0, 0, 5, 4}, {}, decoded.data()), absl::OkStatus());
    if (format != PictureFormat::kJpeg) {
      EXPECT_EQ(decoded, pixels);
    }
  }
}

TEST(Picture, PixelsAreBoundedByTheHeader) {
  std::mt19937_64 random(3);
  const std::string file = RandomJpeg({.height = 20, .width = 30}, &random);
  EXPECT_TRUE(ReadPictureHeader(file, 600).ok());
  EXPECT_EQ(ReadPictureHeader(file, 599).status(),
            absl::InvalidArgumentError("expected at most 599 pixels, got 30 x 20; set most_pixels "
                                       "higher if the picture is meant"));
  // The frame's extents: the data is that of 20 x 30.
  const std::string vast = std::string(file).replace(file.find("\xff\xc0") + 5, 4, 4, '\xff');
  EXPECT_EQ(ReadPictureHeader(vast, kMostPixels).status().code(), absl::StatusCode::kDataLoss);
  const std::string large =
      std::string(file).replace(file.find("\xff\xc0") + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_EQ(ReadPictureHeader(large, kMostPixels).status(),
            absl::InvalidArgumentError("expected at most 268435456 pixels, got 65500 x 65500; set "
                                       "most_pixels higher if the picture is meant"));
}

TEST(Picture, FailedDecodingOfATurnedPictureIsItsError) {
  std::mt19937_64 random(4);
  std::string file = RandomJpeg({.height = 20, .width = 30, .exif = ExifData(6, false)}, &random);
  file.resize(file.size() - 1);
  const auto header = ReadPictureHeader(file, kMostPixels).value();
  Bytes pixels(600 * 3);
  EXPECT_EQ(DecodePicture(file, header, {0, 0, 30, 20}, {}, pixels.data()).code(),
            absl::StatusCode::kDataLoss);
}

TEST(Picture, OfAMaskTheNumbersAreTurnedAndOtherFormatsRefused) {
  std::mt19937_64 random(6);
  const PngPicture picture = RandomPng(
      {.height = 2, .width = 3, .color_type = PNG_COLOR_TYPE_PALETTE, .depth = 4}, &random);
  const std::string mask = WithPngChunk(picture.file, "IDAT", "eXIf", kExifSix);
  const PixelFormat indices = {.channels = 1, .indices = true};
  Bytes pixels(6);
  const auto header = ReadPictureHeader(mask, kMostPixels).value();
  EXPECT_EQ(DecodePicture(mask, header, {0, 0, 3, 2}, indices, pixels.data()), absl::OkStatus());
  const std::vector<uint32_t>& v = picture.values;
  EXPECT_EQ(std::vector<uint32_t>(pixels.begin(), pixels.end()),
            (std::vector<uint32_t>{v[3], v[0], v[4], v[1], v[5], v[2]}));

  const std::string file = RandomJpeg({.height = 2, .width = 3, .stored = JCS_GRAYSCALE}, &random);
  EXPECT_EQ(
      DecodePicture(file, *ReadPictureHeader(file, kMostPixels), {0, 0, 2, 3}, indices,
                    pixels.data()),
      absl::InvalidArgumentError("expected a mask, a PNG with a palette or with grey of at "
                                 "most 8 bits, whose pixels are numbers; got another format"));
}

TEST(Picture, EmptyFileIsNone) {
  EXPECT_EQ(ReadPictureHeader("", kMostPixels).status(),
            absl::InvalidArgumentError("expected a picture, got an empty file"));
}

TEST(PictureDeathTest, WindowsLieWithin) {
  std::mt19937_64 random(5);
  const std::string file = RandomJpeg({.height = 20, .width = 30}, &random);
  const auto header = ReadPictureHeader(file, kMostPixels).value();
  Bytes pixels(21 * 31 * 4);
  for (const Window& window : {Window{0, 0, 21, 30}, Window{0, 0, 20, 31}, Window{-1, 0, 1, 1},
                               Window{0, 30, 1, 1}, Window{0, 0, 0, 1}, Window{0, 0, 1, 0}})
    EXPECT_DEATH((void)DecodePicture(file, header, window, {}, pixels.data()), "window");
  EXPECT_DEATH((void)DecodePicture(file, header, {0, 0, 1, 1}, {.channels = 2}, pixels.data()),
               "channels");
  EXPECT_DEATH((void)DecodePicture(file, header, {0, 0, 1, 1}, {.indices = true}, pixels.data()),
               "indices");
}

}  // namespace
}  // namespace gyre
