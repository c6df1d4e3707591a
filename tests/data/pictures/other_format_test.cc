#include "engine/data/pictures/other_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <opencv2/imgcodecs.hpp>
#include <thread>

#include "tests/data/pictures/other_fixture.h"
#include "tests/data/pictures/tiff_fixture.h"

namespace gyre {
namespace {

std::string Bytes(uint32_t value, int size, bool big_endian = false) {
  return IntegerBytes(value, size, big_endian);
}

// bits: 1, 4, 8 (with a palette), 24 or 32.  header: 12, 40 or 108 bytes.
OtherPicture RandomBmp(int height, int width, int bits, uint32_t header, bool top_down,
                       std::mt19937_64* random) {
  std::string palette;
  const int entry = header == 12 ? 3 : 4;
  std::vector<Rgba> colors;
  for (int i = 0; bits <= 8 && i < 1 << bits; ++i) {
    const auto color = static_cast<uint32_t>((*random)() & 0xffffff);
    palette += Bytes(color, entry);
    colors.push_back({static_cast<int>(color >> 16), static_cast<int>(color >> 8 & 255),
                      static_cast<int>(color & 255), 255});
  }
  OtherPicture picture;
  std::vector<std::string> rows;
  for (int y = 0; y < height; ++y) {
    std::string row;
    for (int x = 0; x < width; ++x) {
      const auto value = static_cast<uint32_t>((*random)());
      if (bits < 8) {  // the upper bits are the left pixels
        if (x * bits % 8 == 0) row += '\0';
        const uint32_t index = value % (1u << bits);
        row.back() = static_cast<char>(row.back() | index << (8 - bits - x * bits % 8));
        picture.pixels.push_back(colors[index]);
        continue;
      }
      row += Bytes(value, bits / 8);  // the fourth byte of 32 bits means nothing
      picture.pixels.push_back(bits == 8 ? colors[value & 255]
                                         : Rgba{static_cast<int>(value >> 16 & 255),
                                                static_cast<int>(value >> 8 & 255),
                                                static_cast<int>(value & 255), 255});
    }
    row.resize((row.size() + 3) / 4 * 4);
    rows.push_back(row);
  }
  if (!top_down) std::reverse(rows.begin(), rows.end());
  std::string data;
  for (const std::string& row : rows) data += row;
  std::string info = Bytes(header, 4);
  if (header == 12) {
    info += Bytes(static_cast<uint32_t>(width), 2) + Bytes(static_cast<uint32_t>(height), 2) +
            Bytes(1, 2) + Bytes(static_cast<uint32_t>(bits), 2);
  } else {
    info += Bytes(static_cast<uint32_t>(width), 4) +
            Bytes(static_cast<uint32_t>(top_down ? -height : height), 4) + Bytes(1, 2) +
            Bytes(static_cast<uint32_t>(bits), 2);
  }
  info.resize(header);  // no packing, and as many colours as the bits allow
  const auto at = static_cast<uint32_t>(14 + info.size() + palette.size());
  picture.file = "BM" + Bytes(at + static_cast<uint32_t>(data.size()), 4) + Bytes(0, 4) +
                 Bytes(at, 4) + info + palette + data;
  return picture;
}

TEST(Bmp, EveryKindAndWindowIsRight) {
  std::mt19937_64 random(1);
  for (const auto& [height, width] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 5}, {6, 1}, {7, 10}, {9, 3}}) {
    for (const int bits : {1, 4, 8, 24, 32}) {
      for (const uint32_t header : {12u, 40u, 108u}) {
        for (const bool top_down : {false, true}) {
          if (header == 12 && (top_down || bits == 32)) continue;
          ExpectOther(RandomBmp(height, width, bits, header, top_down, &random), height, width,
                      &random);
          ASSERT_FALSE(HasFatalFailure()) << bits << " bits, header " << header << ' ' << top_down;
        }
      }
    }
  }
}

// A BMP of 5 x 3 pixels of a run-length code.  Colour i of the palette is (i, i, i).
std::string BmpOfRuns(int bits, const std::string& code) {
  std::string palette;
  for (uint32_t i = 0; i < 1u << bits; ++i) palette += Bytes(i * 0x10101, 4);
  std::string info = Bytes(40, 4) + Bytes(5, 4) + Bytes(3, 4) + Bytes(1, 2) +
                     Bytes(static_cast<uint32_t>(bits), 2) + Bytes(bits == 8 ? 1 : 2, 4);
  info.resize(40);
  const auto at = static_cast<uint32_t>(14 + info.size() + palette.size());
  return "BM" + Bytes(0, 8) + Bytes(at, 4) + info + palette + code;
}

TEST(Bmp, RunsSkipsAndPlainIndicesAreRight) {
  using namespace std::string_literals;
  std::mt19937_64 random(1);
  const auto expect = [&](int bits, const std::string& code, const std::vector<int>& grey) {
    OtherPicture picture = {BmpOfRuns(bits, code), {}};
    for (const int value : grey) picture.pixels.push_back({value, value, value, 255});
    ExpectOther(picture, 3, 5, &random);
  };
  // The lowest row comes first.  0 begins: 0, an end of a row; 1, the end; 2, a move; else indices.
  expect(8, "\5\7\0\0\0\2\1\1\2\x09\0\1"s, {0, 9, 9, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7});
  expect(8, "\0\3\1\2\3\0\2\4\0\0\0\4\5\6\7\x08\1\xff\0\0\1\2\0\0"s,
         {2, 0, 0, 0, 0, 5, 6, 7, 8, 255, 1, 2, 3, 4, 4});
  expect(4, "\5\x1e\0\0\0\5\x12\x34\x50\0\0\0\1\xf0\0\1"s,
         {15, 0, 0, 0, 0, 1, 2, 3, 4, 5, 1, 14, 1, 14, 1});
  const std::string wrong = "DATA_LOSS: the BMP's run-length code is truncated or damaged";
  for (const std::string& code :
       {""s, "\5"s, "\5\7"s, "\6\7\0\1"s, "\0\2\1"s, "\0\4\1\2"s, "\0\2\0\3\1\1\0\1"s}) {
    EXPECT_EQ(ErrorOfOther(BmpOfRuns(8, code)).ToString(), wrong);
  }
  EXPECT_EQ(ErrorOfOther(BmpOfRuns(8, "").substr(0, 600)).ToString(), wrong);
}

TEST(Bmp, OtherKindsAreRefused) {
  std::mt19937_64 random(1);
  std::string file = RandomBmp(3, 4, 32, 108, false, &random).file;
  constexpr char kStart[] = "INVALID_ARGUMENT: expected a picture of a kind that is read, got ";
  constexpr char kEnd[] = "; convert it to PNG or TIFF";
  file.replace(30, 4, Bytes(3, 4));  // masks of colours
  EXPECT_EQ(ErrorOfOther(file).ToString(),
            absl::StrCat(kStart, "a BMP with unusual masks of colours", kEnd));
  file.replace(54, 12, Bytes(0xff0000, 4) + Bytes(0xff00, 4) + Bytes(0xff, 4));
  EXPECT_TRUE(ErrorOfOther(file).ok());
  file.replace(66, 4, Bytes(0xff000000, 4));
  EXPECT_EQ(ErrorOfOther(file).ToString(), absl::StrCat(kStart, "a BMP with alpha", kEnd));
  file.replace(28, 2, Bytes(16, 2));
  EXPECT_EQ(ErrorOfOther(file).ToString(), absl::StrCat(kStart, "a BMP of 16 bits a pixel", kEnd));
}

TEST(Bmp, ABrokenHeaderIsAnError) {
  std::mt19937_64 random(1);
  const std::string file = RandomBmp(3, 4, 24, 40, false, &random).file;
  const auto with = [&](size_t at, uint32_t value) {
    std::string changed = file;
    return ErrorOfOther(changed.replace(at, 4, Bytes(value, 4))).ToString();
  };
  EXPECT_EQ(with(18, 0), "DATA_LOSS: expected a BMP of 1 to 1048576 pixels a side, got 0 x 3");
  EXPECT_EQ(with(22, 0x80000000),
            "DATA_LOSS: expected a BMP of 1 to 1048576 pixels a side, got 4 x 2147483648");
  EXPECT_EQ(with(14, 13),
            "DATA_LOSS: expected a BMP whose header has 12, 40 or more bytes, got 13");
  EXPECT_EQ(with(28, 7),
            "INVALID_ARGUMENT: expected a picture of a kind that is read, got a BMP of 7 bits a "
            "pixel; convert it to PNG or TIFF");
  EXPECT_EQ(with(30, 4),
            "INVALID_ARGUMENT: expected a picture of a kind that is read, got a BMP of 24 bits a "
            "pixel that is packed by method 4; convert it to PNG or TIFF");
  EXPECT_EQ(with(10, 60),
            "DATA_LOSS: expected 36 bytes of pixels of a BMP of 4 x 3, got 30: it is truncated or "
            "damaged");
  std::string palette = RandomBmp(3, 4, 8, 40, false, &random).file.substr(0, 400);
  EXPECT_EQ(ErrorOfOther(palette.replace(10, 4, Bytes(300, 4))).ToString(),
            "DATA_LOSS: expected a BMP's palette of 256 colours: it is truncated");
}

OtherPicture RandomPnm(char kind, int height, int width, int most, std::mt19937_64* random) {
  const bool bitmap = kind == '1' || kind == '4', color = kind == '3' || kind == '6';
  const bool text = kind <= '3';
  OtherPicture picture;
  picture.file = std::string("P") + kind + "\n# made by a test\n" + std::to_string(width) + " " +
                 std::to_string(height) + "\n";
  if (!bitmap) picture.file += std::to_string(most) + "\n";
  for (int y = 0; y < height; ++y) {
    std::string bits;
    for (int x = 0; x < width; ++x) {
      Rgba pixel = {0, 0, 0, 255};
      for (int c = 0; c < (color ? 3 : 1); ++c) {
        const auto value = static_cast<uint32_t>((*random)() % (bitmap ? 2 : most + 1));
        int shown = bitmap ? (value == 0 ? 255 : 0) : Shown(value, static_cast<uint32_t>(most));
        if (color)
          pixel[c] = shown;
        else
          pixel = {shown, shown, shown, 255};
        if (text) {
          picture.file += std::to_string(value) + (x % 5 == 4 ? "\n" : kind == '1' ? "" : " ");
        } else if (bitmap) {
          if (x % 8 == 0) bits += '\0';
          bits.back() = static_cast<char>(bits.back() | value << (7 - x % 8));
        } else {
          picture.file += Bytes(value, most < 256 ? 1 : 2, /*big_endian=*/true);
        }
      }
      picture.pixels.push_back(pixel);
    }
    picture.file += bits;
  }
  return picture;
}

TEST(Pnm, EveryKindAndWindowIsRight) {
  std::mt19937_64 random(1);
  for (const auto& [height, width] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 9}, {6, 1}, {7, 10}, {9, 3}}) {
    for (const char kind : std::string("123456")) {
      for (const int most : {255, 1, 100, 1000, 65535}) {
        ExpectOther(RandomPnm(kind, height, width, most, &random), height, width, &random);
        ASSERT_FALSE(HasFatalFailure()) << 'P' << kind << " of values up to " << most;
      }
    }
  }
}

TEST(Pnm, ABrokenHeaderIsAnError) {
  EXPECT_EQ(ErrorOfOther("P5 3 2 0 ......").ToString(),
            "DATA_LOSS: expected a PNM of values up to 1 to 65535, got 0");
  EXPECT_EQ(ErrorOfOther("P5 3 2 70000 ......").ToString(),
            "DATA_LOSS: expected a PNM of values up to 1 to 65535, got 70000");
  EXPECT_EQ(ErrorOfOther("P4 x").ToString(),
            "DATA_LOSS: expected a PNM of 1 to 1048576 pixels a side, got -1 x -1");
  EXPECT_EQ(ErrorOfOther("P4 99999999999999999999999999 1").ToString(),
            "DATA_LOSS: expected a PNM of 1 to 1048576 pixels a side, got 9999999999999 x 1");
  EXPECT_EQ(ErrorOfOther("P5 # no more").code(), absl::StatusCode::kDataLoss);
}

TEST(Pnm, BytesThatLackOrExceedAreErrors) {
  EXPECT_TRUE(ErrorOfOther("P5 3 2 9\n\1\2\3\4\5\6 more").ok());
  EXPECT_EQ(ErrorOfOther("P5 3 2 9\n\1\2\3\4\5"),
            absl::DataLossError("expected 6 bytes of pixels of a PNM of 3 x 2, got 5: it is "
                                "truncated or damaged"));
  EXPECT_EQ(ErrorOfOther("P5 3 2 9\n\1\2\3\4\5\12"),
            absl::DataLossError("expected a PNM of numbers up to 9, got 10 in row 1, column 2"));
}

TEST(Pnm, ATextNeedsNoLastNewlineAndSaysWhatIsWrong) {
  EXPECT_TRUE(ErrorOfOther("P3\n2 1\n9\n0 1 2 # a pixel\n7 8 9").ok());
  EXPECT_TRUE(ErrorOfOther("P1 3 1 010").ok());
  EXPECT_EQ(ErrorOfOther("P3 2 1 9 0 1 2 7 8"),
            absl::DataLossError("expected a PNM of 6 numbers, got 5: it is truncated or damaged"));
  EXPECT_EQ(ErrorOfOther("P2 3 2 9 1 2 3 x 5 6"),
            absl::DataLossError("expected a PNM of 6 numbers, got 3: it is truncated or damaged"));
  EXPECT_EQ(ErrorOfOther("P2 3 2 9 1 2 3 4 10 6"),
            absl::DataLossError("expected a PNM of numbers up to 9, got 10 in row 1, column 1"));
  EXPECT_EQ(ErrorOfOther("P1 3 1 012"),
            absl::DataLossError("expected a PNM of numbers up to 1, got 2 in row 0, column 2"));
}

OtherPicture RandomJpeg2000(int height, int width, int channels, int depth,
                            std::mt19937_64* random) {
  cv::Mat mat(height, width, CV_MAKETYPE(CV_16U, channels));
  OtherPicture picture;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      std::array<int, 4> values = {};
      for (int c = 0; c < channels; ++c) {
        const auto value = static_cast<uint32_t>((*random)() % (1u << depth));
        mat.ptr<uint16_t>(y)[x * channels + c] = static_cast<uint16_t>(value);
        values[c] = Shown(value, (1u << depth) - 1);
      }
      picture.pixels.push_back(
          channels == 1 ? Rgba{values[0], values[0], values[0], 255}
                        : Rgba{values[2], values[1], values[0], channels == 4 ? values[3] : 255});
    }
  }
  if (depth == 8) mat.convertTo(mat, CV_8U);
  std::vector<uint8_t> bytes;
  GYRE_CHECK(cv::imencode(".jp2", mat, bytes, {cv::IMWRITE_JPEG2000_COMPRESSION_X1000, 1000}));
  picture.file.assign(bytes.begin(), bytes.end());
  return picture;
}

TEST(Jpeg2000, EveryKindAndWindowIsRight) {
  std::mt19937_64 random(1);
  for (const auto& [height, width] : std::vector<std::pair<int, int>>{{32, 33}, {34, 32}}) {
    for (const int channels : {1, 3, 4}) {
      for (const int depth : {8, 16}) {
        OtherPicture picture = RandomJpeg2000(height, width, channels, depth, &random);
        // One size as a codestream without a container.
        if (width == 33) picture.file.erase(0, picture.file.find("\xff\x4f\xff\x51"));
        ExpectOther(picture, height, width, &random);
        ASSERT_FALSE(HasFatalFailure()) << channels << " channels of " << depth;
      }
    }
  }
}

TEST(Jpeg2000, OtherKindsAreRefused) {
  std::mt19937_64 random(1);
  const std::string file = RandomJpeg2000(33, 40, 3, 8, &random).file;
  const size_t stream = file.find("\xff\x4f\xff\x51");
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string changed = file;
    return std::string(ErrorOfOther(changed.replace(stream + at, bytes.size(), bytes)).message());
  };
  EXPECT_EQ(with(40, Bytes(2, 2, true)),
            "expected a picture of a kind that is read, got JPEG 2000 that is not grey, colour, or "
            "colour with alpha; convert it to PNG or TIFF");
  EXPECT_THAT(with(42, "\x0b"), testing::HasSubstr("other samples than unsigned 8 or 16 bits"));
  EXPECT_THAT(with(42, "\x87"), testing::HasSubstr("other samples than unsigned 8 or 16 bits"));
  EXPECT_THAT(with(46, "\x02\x02"), testing::HasSubstr("whose components differ"));
  EXPECT_THAT(with(2, "\xff\x90"),
              testing::HasSubstr("expected JPEG 2000 with a codestream, got none"));
}

TEST(Jpeg2000, SlicesAreThoseOfAll) {
  std::mt19937_64 random(1);
  // A slice has 2^16 pixels, all of one reader, or 2^19, each of its own, where channels move.
  enum Kind { kOneReader, kMoved, kLayers };
  for (const Kind kind : {kOneReader, kMoved, kLayers}) {
    constexpr int kChannels = 4;
    OtherPicture picture = RandomJpeg2000(753, 710, kChannels, 8, &random);
    if (kind == kLayers) {  // all but one empty: a reader has three slices
      picture.file.replace(picture.file.find("\xff\x52") + 6, 2, Bytes(64, 2, true));
    }
    if (kind == kMoved) {  // red and blue
      const size_t box = picture.file.find("cdef");
      ASSERT_NE(box, picture.file.npos);
      std::swap(picture.file[box + 11], picture.file[box + 23]);
      for (Rgba& pixel : picture.pixels) std::swap(pixel[0], pixel[2]);
    }
    const auto header = ReadOtherHeader(picture.file).value();
    const PixelFormat format = {.channels = kChannels};
    const auto pixels = *DecodeWindow(&DecodeOther, picture.file, header, {0, 0, 753, 710}, format);
    EXPECT_TRUE(pixels == Formatted(picture.pixels, format)) << kind;
  }
}

TEST(Jpeg2000, WhatTakesMuchMemoryIsRefused) {
  std::mt19937_64 random(1);
  const std::string file = RandomJpeg2000(33, 40, 3, 8, &random).file;
  const size_t stream = file.find("\xff\x4f\xff\x51");
  const auto sized = [&](int64_t tile, const std::string& block) {
    std::string changed = file;
    const std::string side = Bytes(1024, 4, true);
    changed.replace(stream + 8, 8, side + side);
    const std::string tile_side = Bytes(static_cast<uint32_t>(tile), 4, true);
    changed.replace(stream + 24, 8, tile_side + tile_side);
    const size_t coding = changed.find("\xff\x52", stream);
    return ReadOtherHeader(changed.replace(coding + 10, 2, block)).status();
  };
  EXPECT_TRUE(sized(1024, "\x04\x04").ok());
  EXPECT_TRUE(sized(16, "\x04\x04").ok());
  EXPECT_EQ(sized(15, "\x04\x04"),
            absl::DataLossError("expected JPEG 2000 of 1 to 4096 tiles, got 4761"));
  EXPECT_EQ(sized(0, "\x04\x04"),
            absl::DataLossError("expected JPEG 2000 of 1 to 4096 tiles, got 0"));
  EXPECT_THAT(sized(1024, std::string(2, '\0')).ToString(),  // of 4 x 4
              testing::StartsWith("INVALID_ARGUMENT: expected JPEG 2000 of at most 131072 code "
                                  "blocks a tile, got "));
}

TEST(Jpeg2000, OtherColoursAreRefused) {
  std::mt19937_64 random(1);
  std::string file = RandomJpeg2000(33, 40, 3, 8, &random).file;
  const size_t colors = file.find("colr");
  ASSERT_NE(colors, file.npos);
  file.replace(colors + 7, 4, Bytes(18, 4, true));  // YCbCr
  EXPECT_EQ(ErrorOfOther(file),
            absl::InvalidArgumentError("expected JPEG 2000 of grey, or of red, green, blue, got "
                                       "other colours; convert it to PNG or TIFF"));
}

TEST(Jpeg2000, AFileThatClaimsFarMoreThanItHasIsAnError) {
  std::mt19937_64 random(1);
  const std::string file = RandomJpeg2000(33, 40, 1, 8, &random).file;
  const size_t stream = file.find("\xff\x4f\xff\x51");
  const auto sized = [&](uint32_t height, uint32_t width) {
    std::string changed = file;
    return changed.replace(stream + 8, 8, Bytes(width, 4, true) + Bytes(height, 4, true));
  };
  EXPECT_EQ(ReadOtherHeader(sized(65500, 4000)).status(),
            absl::DataLossError(
                absl::StrCat("expected at least 15991 bytes of a JPEG 2000 of 4000 x 65500, got ",
                             file.size() - stream, ": it is truncated or damaged")));
  EXPECT_TRUE(ReadOtherHeader(sized(2048, 1024)).ok());
}

std::vector<std::string> SmallFiles() {
  std::mt19937_64 random(1);
  std::vector<std::string> files = {
      RandomBmp(7, 10, 24, 40, false, &random).file, RandomBmp(7, 10, 8, 40, false, &random).file,
      RandomPnm('6', 7, 10, 255, &random).file,      RandomPnm('2', 7, 10, 255, &random).file,
      RandomPnm('4', 7, 10, 255, &random).file,      RandomJpeg2000(33, 40, 3, 8, &random).file};
  for (const TiffKind& kind : kTiffKinds) files.push_back(RandomTiff(kind, &random).file);
  return files;
}

TEST(OtherFormat, ATruncatedFileIsAnError) {
  testing::internal::CaptureStderr();
  for (const std::string& file : SmallFiles()) {
    ASSERT_TRUE(ErrorOfOther(file).ok());
    // A text may end with any digit of its last number.
    for (size_t lost = file.starts_with("P2") ? 4 : 2; lost <= file.size(); ++lost) {
      EXPECT_FALSE(ErrorOfOther(file.substr(0, file.size() - lost)).ok())
          << file.substr(0, 2) << " of " << file.size() << " without " << lost;
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(OtherFormat, DamageIsAnErrorOrOtherPixelsButNoCrash) {
  testing::internal::CaptureStderr();
  std::mt19937_64 random(4);
  int errors = 0;
  for (int i = 0; i < 6; ++i) {
    for (std::string file : SmallFiles()) {
      for (int k = 0; k < 3; ++k) {
        const size_t at = random() % (k == 0 ? file.size() : std::min<size_t>(file.size(), 64));
        file[at] = static_cast<char>(random());
      }
      const auto header = ReadOtherHeader(file);
      if (!header.ok() || header->height * header->width > 1 << 20) continue;
      const Window all = {0, 0, header->height, header->width};
      errors += !DecodeWindow(&DecodeOther, file, *header, all, {.channels = 1}).ok();
    }
  }
  EXPECT_GT(errors, 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(OtherFormat, ThreadsDecodeSideBySide) {
  const std::vector<std::string> files = SmallFiles();
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&files, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 60; ++i) {
        const std::string& file = files[random() % files.size()];
        EXPECT_TRUE(ErrorOfOther(file).ok());
        EXPECT_FALSE(ErrorOfOther(file.substr(0, file.size() / 2)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OtherFormat, OtherFilesAreNamed) {
  constexpr char kExpected[] =
      "INVALID_ARGUMENT: expected a picture (JPEG, PNG, WebP, TIFF, BMP, JPEG 2000, PBM, PGM, "
      "PPM), "
      "got ";
  EXPECT_EQ(ErrorOfOther("GIF89a...").ToString(),
            absl::StrCat(kExpected, "a GIF; convert it to PNG"));
  EXPECT_EQ(ErrorOfOther(std::string("\0\0\0\x1c"
                                     "ftypavif",
                                     12))
                .ToString(),
            absl::StrCat(kExpected, "a HEIF, AVIF or video file; convert it to PNG"));
  EXPECT_EQ(ErrorOfOther("%PDF-1.4").ToString(),
            absl::StrCat(kExpected, "a PDF; convert it to PNG"));
  for (const char* const text : {"", "B", "BM", "BMI of patients, a table of text", "P", "P5",
                                 "P7\nWIDTH 3", "PX 5", "II", "I like pictures", "\xff\xd8\xff"}) {
    EXPECT_EQ(ErrorOfOther(text).ToString(), absl::StrCat(kExpected, "a file of another kind"))
        << text;
  }
}

}  // namespace
}  // namespace gyre
