#include "engine/data/pictures/webp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include "engine/runtime/check.h"
#include "tests/data/pictures/pixels_fixture.h"

namespace gyre {
namespace {

struct WebpKind {
  int height = 1, width = 1;
  bool alpha = false, lossless = false, smooth = false;
  float quality = 75;
};

struct WebpPicture {
  std::string file;
  std::vector<Rgba> pixels;  // that libwebp decodes as a whole
};

WebpPicture RandomWebp(const WebpKind& kind, std::mt19937_64* random) {
  std::vector<uint8_t> rgba(static_cast<size_t>(4 * kind.height * kind.width));
  for (size_t i = 0; i < rgba.size(); ++i) {
    const auto at = static_cast<int>(i / 4);
    const int x = at % kind.width, y = at / kind.width, c = static_cast<int>(i % 4);
    const uint64_t value = kind.smooth ? (7 + c) * x + (5 - c) * y : (*random)();
    rgba[i] = c == 3 && !kind.alpha ? 255 : static_cast<uint8_t>(value);
  }
  WebPConfig config;
  GYRE_CHECK(WebPConfigInit(&config) != 0);
  config.lossless = kind.lossless, config.exact = 1, config.quality = kind.quality;
  WebPPicture picture;
  GYRE_CHECK(WebPPictureInit(&picture) != 0);
  picture.use_argb = 1, picture.height = kind.height, picture.width = kind.width;
  GYRE_CHECK(WebPPictureImportRGBA(&picture, rgba.data(), 4 * kind.width) != 0);
  WebPMemoryWriter writer;
  WebPMemoryWriterInit(&writer);
  picture.writer = WebPMemoryWrite, picture.custom_ptr = &writer;
  GYRE_CHECK(WebPEncode(&config, &picture) != 0);
  WebpPicture result;
  result.file.assign(reinterpret_cast<char*>(writer.mem), writer.size);
  WebPMemoryWriterClear(&writer);
  WebPPictureFree(&picture);
  if (!kind.lossless) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(result.file.data());
    GYRE_CHECK(WebPDecodeRGBAInto(bytes, result.file.size(), rgba.data(), rgba.size(),
                                  4 * kind.width) != nullptr);
  }
  for (size_t i = 0; i < rgba.size(); i += 4) {
    result.pixels.push_back({rgba[i], rgba[i + 1], rgba[i + 2], rgba[i + 3]});
  }
  return result;
}

std::string LittleEndianBytes(uint32_t value, int size) { return IntegerBytes(value, size, false); }

std::string Chunk(const std::string& type, const std::string& data) {
  return type + LittleEndianBytes(static_cast<uint32_t>(data.size()), 4) + data +
         (data.size() % 2 == 1 ? std::string(1, '\0') : "");
}

std::string Riff(const std::string& chunks) {
  return "RIFF" + LittleEndianBytes(static_cast<uint32_t>(chunks.size() + 4), 4) + "WEBP" + chunks;
}

std::string Extended(uint8_t flags, int height, int width, const std::string& chunks) {
  return Riff(Chunk("VP8X", LittleEndianBytes(flags, 4) +
                                LittleEndianBytes(static_cast<uint32_t>(width - 1), 3) +
                                LittleEndianBytes(static_cast<uint32_t>(height - 1), 3)) +
              chunks);
}

TEST(Webp, EveryKindAndWindowIsRight) {
  std::mt19937_64 random(5);
  for (const auto& [height, width] : std::vector<std::pair<int, int>>{
           {1, 1}, {1, 2}, {2, 1}, {3, 3}, {5, 8}, {17, 16}, {33, 50}}) {
    for (int bits = 0; bits < 16; ++bits) {
      const WebpKind kind = {.height = height,
                             .width = width,
                             .alpha = (bits & 1) != 0,
                             .lossless = (bits & 2) != 0,
                             .smooth = (bits & 4) != 0,
                             .quality = (bits & 8) != 0 ? 20.f : 90.f};
      const WebpPicture picture = RandomWebp(kind, &random);
      const auto header = ReadWebpHeader(picture.file);
      for (int i = 0; i < 2; ++i) {
        ExpectPixels(&DecodeWebp, picture.file, header, picture.pixels, height, width, &random);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << height << " x " << width << ' ' << bits;
      }
      EXPECT_EQ(header->format, PictureFormat::kWebp);
      EXPECT_EQ(header->orientation, 1);
    }
  }
}

TEST(Webp, ATruncatedFileIsAnErrorWhereverItEnds) {
  std::mt19937_64 random(5);
  for (const bool lossless : {false, true}) {
    const std::string file =
        RandomWebp({.height = 9, .width = 7, .alpha = true, .lossless = lossless}, &random).file;
    for (size_t size = 0; size < file.size(); ++size) {
      const auto header = ReadWebpHeader(file.substr(0, size));
      EXPECT_EQ(header.status().code(), absl::StatusCode::kDataLoss) << size;
    }
    EXPECT_TRUE(ReadWebpHeader(file + "more").ok());
  }
  EXPECT_EQ(ReadWebpHeader("RIFF").status().message(),
            "the WebP is truncated or damaged: expected a whole container (RIFF) with a picture");
}

// The container's sizes say that all is there, but it is not.
TEST(Webp, ACutStreamIsAnError) {
  std::mt19937_64 random(5);
  for (const bool lossless : {false, true}) {
    const std::string file =
        RandomWebp({.height = 40, .width = 40, .lossless = lossless}, &random).file;
    const std::string stream = file.substr(20);
    for (const size_t size : {stream.size() / 4, stream.size() / 2, stream.size() * 3 / 4}) {
      const std::string cut =
          Riff(Chunk(lossless ? "VP8L" : "VP8 ", stream.substr(0, size / 2 * 2)));
      const auto header = ReadWebpHeader(cut).value();
      const auto decoded = DecodeWindow(&DecodeWebp, cut, header, {0, 0, 40, 40}, {});
      EXPECT_THAT(decoded.status().ToString(),
                  testing::StartsWith("DATA_LOSS: the WebP is truncated or damaged: its data "));
    }
  }
}

TEST(Webp, DamageIsAnErrorOrOtherPixels) {
  std::mt19937_64 random(9);
  int errors = 0;
  for (int i = 0; i < 200; ++i) {
    const WebpKind kind = {.height = 20, .width = 31, .alpha = i % 2 == 0, .lossless = i % 4 < 2};
    std::string file = RandomWebp(kind, &random).file;
    for (int k = 0; k < 4; ++k) file[random() % file.size()] = static_cast<char>(random());
    const auto header = ReadWebpHeader(file);
    if (!header.ok() || header->height * header->width > 1 << 20) continue;
    const Window all = {0, 0, header->height, header->width};
    errors += !DecodeWindow(&DecodeWebp, file, *header, all, {.channels = 1}).ok();
  }
  EXPECT_GT(errors, 0);
}

TEST(Webp, ExifTurns) {
  std::mt19937_64 random(5);
  const WebpPicture picture = RandomWebp({.height = 5, .width = 4, .lossless = true}, &random);
  constexpr uint8_t kExif = 8;
  for (const std::string& prefix : {std::string(), std::string("Exif\0\0", 6)}) {
    const std::string file =
        Extended(kExif, 5, 4, picture.file.substr(12) + Chunk("EXIF", prefix + kExifSix));
    const auto header = ReadWebpHeader(file).value();
    EXPECT_EQ(std::tuple(header.orientation, header.height, header.width), std::tuple(6, 4, 5));
    const auto stored = DecodeWindow(&DecodeWebp, file, header, {0, 0, 5, 4}, {}).value();
    EXPECT_EQ(stored, Formatted(picture.pixels, {}));
  }
}

TEST(Webp, AnAnimationIsRefused) {
  std::mt19937_64 random(5);
  const std::string image =
      RandomWebp({.height = 2, .width = 2, .lossless = true}, &random).file.substr(12);
  const std::string frame =
      Chunk("ANMF", std::string(6, '\0') + LittleEndianBytes(1, 3) + LittleEndianBytes(1, 3) +
                        LittleEndianBytes(100, 3) + std::string(1, '\0') + image);
  constexpr uint8_t kAnimation = 2;
  const std::string file =
      Extended(kAnimation, 2, 2, Chunk("ANIM", std::string(6, '\0')) + frame + frame + frame);
  EXPECT_EQ(ReadWebpHeader(file).status().ToString(),
            "INVALID_ARGUMENT: expected a WebP of one picture, got an animation of 3");
}

}  // namespace
}  // namespace gyre
