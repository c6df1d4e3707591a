#include "engine/data/pictures/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/pictures/png_fixture.h"

namespace gyre {
namespace {

std::vector<PngKind> AllKinds() {
  std::vector<PngKind> kinds;
  for (const bool interlaced : {false, true}) {
    for (const bool transparent : {false, true}) {
      for (const int color : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_PALETTE,
                              PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB_ALPHA}) {
        for (const int depth : {1, 2, 4, 8, 16}) {
          const bool few = color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_PALETTE;
          if (depth < 8 && !few) continue;
          if (depth == 16 && color == PNG_COLOR_TYPE_PALETTE) continue;
          if (transparent && (color & PNG_COLOR_MASK_ALPHA) != 0) continue;
          kinds.push_back({.color_type = color,
                           .depth = depth,
                           .interlaced = interlaced,
                           .transparent = transparent});
        }
      }
    }
  }
  return kinds;
}

absl::Status DecodeAll(const std::string& file, const PictureHeader& header) {
  const Window all = {0, 0, header.height, header.width};
  return DecodeWindow(&DecodePng, file, header, all, {}).status();
}

// Of the header, or else of decoding all.
absl::Status ErrorOf(const std::string& file) {
  const auto header = ReadPngHeader(file);
  return header.ok() ? DecodeAll(file, *header) : header.status();
}

std::string RandomFile(const PngKind& kind, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  return RandomPng(kind, &random).file;
}

// The file with other bytes at `at` within the first chunk of this type, whose CRC-32 is right.
std::string Changed(const std::string& file, const std::string& type, size_t at,
                    const std::string& bytes) {
  const size_t begin = file.find(type);
  const size_t length = png_get_uint_32(reinterpret_cast<png_const_bytep>(&file[begin - 4]));
  std::string data = file.substr(begin + 4, length);
  data.replace(at == std::string::npos ? length - bytes.size() : at, bytes.size(), bytes);
  return file.substr(0, begin - 4) + PngChunkBytes(type, data) + file.substr(begin + 8 + length);
}

TEST(Png, EveryKindAndWindowIsRight) {
  std::mt19937_64 random(7);
  for (PngKind kind : AllKinds()) {
    for (const auto& [height, width] : std::vector<std::pair<int, int>>{
             {1, 1}, {1, 2}, {2, 1}, {1, 9}, {9, 1}, {3, 4}, {5, 5}, {7, 13}, {19, 8}, {33, 17}}) {
      kind.height = height, kind.width = width;
      const PngPicture picture = RandomPng(kind, &random);
      ExpectPixels(&DecodePng, picture.file, ReadPngHeader(picture.file), picture.pixels, height,
                   width, &random);
      ASSERT_FALSE(testing::Test::HasFatalFailure())
          << "color type " << kind.color_type << " depth " << kind.depth << " interlaced "
          << kind.interlaced << " transparent " << kind.transparent;
    }
  }
}

TEST(Png, IndicesAreNumbersAsStored) {
  std::mt19937_64 random(11);
  int masks = 0;
  for (PngKind kind : AllKinds()) {
    kind.height = 9, kind.width = 13;
    const PngPicture picture = RandomPng(kind, &random);
    const auto header = ReadPngHeader(picture.file).value();
    for (int i = 0; i < 4; ++i) {
      const Window window = i == 0 ? Window{0, 0, 9, 13} : RandomWindow(9, 13, &random);
      const auto decoded =
          DecodeWindow(&DecodePng, picture.file, header, window, {.channels = 1, .indices = true});
      if (SamplesOf(kind.color_type) > 1 || kind.depth > 8) {
        const std::string got = SamplesOf(kind.color_type) > 2    ? "colours"
                                : SamplesOf(kind.color_type) == 2 ? "grey and alpha"
                                                                  : "16 bits";
        EXPECT_EQ(decoded.status(), absl::InvalidArgumentError(
                                        "expected a mask, a PNG with a palette or with grey of at "
                                        "most 8 bits, whose pixels are numbers; got a PNG of " +
                                        got));
        continue;
      }
      ++masks;
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      const std::vector<uint32_t> expected = Cut(picture.values, 13, window);
      ASSERT_EQ(std::vector<uint32_t>(decoded->begin(), decoded->end()), expected)
          << "color type " << kind.color_type << " depth " << kind.depth << " interlaced "
          << kind.interlaced;
    }
  }
  EXPECT_EQ(masks, 4 * 2 * 2 * 8);
}

TEST(Png, ATruncatedFileIsAnErrorWhereverItEnds) {
  for (const bool interlaced : {false, true}) {
    const std::string file = RandomFile({.height = 9, .width = 7, .interlaced = interlaced});
    for (size_t size = 8; size < file.size(); ++size) {
      EXPECT_EQ(ReadPngHeader(file.substr(0, size)).status().code(), absl::StatusCode::kDataLoss);
    }
    EXPECT_TRUE(ReadPngHeader(file + "what follows is not read").ok());
  }
  const std::string file = RandomFile({.height = 2, .width = 2});
  EXPECT_EQ(ReadPngHeader(file.substr(0, 40)).status().message(),
            "expected a PNG that ends with chunk IEND, got one that ends at byte 40: it is "
            "truncated");
  EXPECT_THAT(std::string(ReadPngHeader(file.substr(0, 50)).status().message()),
              testing::MatchesRegex("expected [0-9]+ bytes of the PNG's chunk at byte 33, got 17: "
                                    "it is truncated"));
  EXPECT_EQ(ReadPngHeader("\x89PNG\r\n\x1a").status().message(),
            "expected a PNG, got another signature");
  EXPECT_EQ(ReadPngHeader("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Png, AnyChangedByteIsAnError) {
  std::mt19937_64 random(3);
  const std::string file = WithPngChunk(
      RandomFile(
          {.height = 9, .width = 7, .color_type = PNG_COLOR_TYPE_PALETTE, .transparent = true}),
      "IDAT", "eXIf", kExifSix);
  for (size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 + random() % 255));
    EXPECT_FALSE(ReadPngHeader(damaged).ok()) << "byte " << i;
  }
  std::string damaged = RandomFile({.height = 2, .width = 2});
  damaged[45] ^= 1;
  EXPECT_THAT(std::string(ReadPngHeader(damaged).status().message()),
              testing::MatchesRegex("expected CRC-32 [0-9a-f]{8} of the PNG's chunk at byte 33, "
                                    "got [0-9a-f]{8}: the file is damaged"));
}

TEST(Png, AWrongAdlerIsAnErrorOfTheLastRow) {
  const std::string file = RandomFile({.height = 5, .width = 4});
  ASSERT_TRUE(ErrorOf(file).ok());
  const std::string damaged = Changed(file, "IDAT", std::string::npos, "\x12\x34\x56\x78");
  const auto header = ReadPngHeader(damaged).value();
  EXPECT_EQ(DecodeAll(damaged, header).ToString(),
            "DATA_LOSS: the PNG is damaged: IDAT: incorrect data check");
  EXPECT_TRUE(DecodeWindow(&DecodePng, damaged, header, {0, 0, 4, 4}, {}).ok());
}

TEST(Png, DataThatDoNotFitTheHeaderAreErrors) {
  const PngKind kind = {.height = 5, .width = 4};
  const std::string file = RandomFile(kind);
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 4, BigEndianBytes(6))).ToString(),
            "DATA_LOSS: the PNG is damaged: Not enough image data");
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 4, BigEndianBytes(4))).ToString(),
            "DATA_LOSS: the PNG is damaged: IDAT: Too much image data");
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 8, "\x03")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 9, "\x01")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 9, "\x03")).ToString(),
            "DATA_LOSS: the PNG is damaged: IDAT: Missing PLTE before IDAT");
  EXPECT_EQ(ErrorOf(Changed(file, "IDAT", 0, "\xff\xff")).code(), absl::StatusCode::kDataLoss);
  const std::string no_data = file.substr(0, 33) + PngChunkBytes("IEND", "");
  EXPECT_EQ(ErrorOf(no_data).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadPngHeader(file.substr(0, 8) + file.substr(33)).status().message(),
            "expected a PNG whose first chunk is an IHDR of 13 bytes, got another chunk");
}

TEST(Png, AnIndexBeyondThePaletteIsBlack) {
  std::mt19937_64 random(1);
  PngPicture picture = RandomPng(
      {.height = 9, .width = 7, .color_type = PNG_COLOR_TYPE_PALETTE, .depth = 4}, &random);
  const size_t palette = picture.file.find("PLTE") - 4;
  const std::string colors = picture.file.substr(palette + 8, 6);  // two
  picture.file.replace(palette, 12 + 3 * 16, PngChunkBytes("PLTE", colors));
  for (Rgba& pixel : picture.pixels) {
    bool kept = false;
    for (int i : {0, 3}) {
      kept |= pixel[0] == static_cast<uint8_t>(colors[i]) &&
              pixel[1] == static_cast<uint8_t>(colors[i + 1]);
    }
    if (!kept) pixel = {0, 0, 0, 255};
  }
  ExpectPixels(&DecodePng, picture.file, ReadPngHeader(picture.file), picture.pixels, 9, 7,
               &random);
  const auto indices = *DecodeWindow(&DecodePng, picture.file, *ReadPngHeader(picture.file),
                                     {0, 0, 9, 7}, {.channels = 1, .indices = true});
  EXPECT_EQ(indices, std::vector<uint8_t>(picture.values.begin(), picture.values.end()));
}

TEST(Png, SizesThatNoPictureHasAreRefused) {
  const std::string file = RandomFile({});
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 0, BigEndianBytes(0))).ToString(),
            "DATA_LOSS: expected a PNG of 1 pixel or more, got 0 x 1");
  EXPECT_EQ(ErrorOf(Changed(file, "IHDR", 4, BigEndianBytes(1000001))).ToString(),
            "INVALID_ARGUMENT: expected a PNG of at most 1000000 pixels a side, got 1 x 1000001");
  EXPECT_EQ(ReadPngHeader(Changed(file, "IHDR", 4, BigEndianBytes(1000000)))->height, 1000000);
}

TEST(Png, HeadersTellTheKind) {
  const auto kind = [](int color_type, int depth, bool transparent) -> std::string {
    std::mt19937_64 random(1);
    const PngKind of{.color_type = color_type, .depth = depth, .transparent = transparent};
    return ReadPngHeader(RandomPng(of, &random).file)->kind;
  };
  EXPECT_EQ(kind(PNG_COLOR_TYPE_GRAY, 1, false), "grey");
  EXPECT_EQ(kind(PNG_COLOR_TYPE_GRAY, 16, true), "grey 16-bit, alpha");
  EXPECT_EQ(kind(PNG_COLOR_TYPE_RGB, 16, false), "colour 16-bit");
  EXPECT_EQ(kind(PNG_COLOR_TYPE_RGB_ALPHA, 8, false), "colour, alpha");
  EXPECT_EQ(kind(PNG_COLOR_TYPE_PALETTE, 4, false), "palette");
  EXPECT_EQ(kind(PNG_COLOR_TYPE_PALETTE, 8, true), "palette, alpha");
}

TEST(Png, ExifTurnsWhereverItIs) {
  const PngKind kind = {.height = 5, .width = 4};
  std::mt19937_64 random(1);
  const PngPicture picture = RandomPng(kind, &random);
  for (const char* const before : {"IDAT", "IEND"}) {
    for (const std::string& prefix : {std::string(), std::string("Exif\0\0", 6)}) {
      const std::string file = WithPngChunk(picture.file, before, "eXIf", prefix + kExifSix);
      const auto header = ReadPngHeader(file).value();
      EXPECT_EQ(std::tuple(header.orientation, header.height, header.width), std::tuple(6, 4, 5));
      const auto stored = DecodeWindow(&DecodePng, file, header, {0, 0, 5, 4}, {}).value();
      EXPECT_EQ(stored, Formatted(picture.pixels, {}));
    }
  }
  EXPECT_EQ(ReadPngHeader(picture.file)->orientation, 1);
  EXPECT_EQ(ReadPngHeader(picture.file)->format, PictureFormat::kPng);
}

TEST(Png, OtherChunksAreNotRead) {
  const PngPicture picture = [] {
    std::mt19937_64 random(1);
    return RandomPng({.height = 5, .width = 4}, &random);
  }();
  std::string file = picture.file;
  for (const char* const type : {"iCCP", "zTXt", "gAMA", "sRGB", "pHYs", "bKGD", "acTL", "prIv"}) {
    file = WithPngChunk(file, "IDAT", type, "no such data");
    file = WithPngChunk(file, "IEND", type, "no such data");
  }
  std::mt19937_64 random(1);
  testing::internal::CaptureStderr();
  ExpectPixels(&DecodePng, file, ReadPngHeader(file), picture.pixels, 5, 4, &random);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace gyre
