#include "engine/data/pictures/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/pictures/jpeg_fixture.h"
#include "tests/data/pictures/pixels_fixture.h"

namespace gyre {
namespace {

using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

Window Whole(const PictureHeader& header) { return {0, 0, header.height, header.width}; }

Window RandomWindowOf(const PictureHeader& header, Random* random) {
  return RandomWindow(header.height, header.width, random);
}

// Decodes a file without orientation.  Empty with an error.
Bytes Decoded(std::string_view file, const Window& window, int channels) {
  const auto header = ReadJpegHeader(file);
  EXPECT_TRUE(header.ok()) << header.status();
  Bytes pixels(static_cast<size_t>(window.height * window.width * channels), 99);
  const absl::Status status =
      DecodeJpeg(file, *header, window, {.channels = channels}, pixels.data());
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? pixels : Bytes();
}

// Of the header or else of the whole picture.
absl::Status Fault(std::string_view file) {
  const auto header = ReadJpegHeader(file);
  if (!header.ok()) return header.status();
  Bytes pixels(static_cast<size_t>(header->height * header->width * 3));
  return DecodeJpeg(file, *header, Whole(*header), {}, pixels.data());
}

// Of the first component and the second.  The third has a block an MCU.
constexpr std::array<int, 2> kSamplings[][2] = {
    {{1, 1}, {1, 1}}, {{2, 1}, {1, 1}}, {{1, 2}, {1, 1}}, {{2, 2}, {1, 1}}, {{4, 1}, {1, 1}},
    {{4, 2}, {1, 1}}, {{1, 4}, {1, 1}}, {{4, 1}, {2, 1}}, {{2, 2}, {2, 1}}, {{2, 2}, {1, 2}}};

// Any kind that the fixture writes, of up to `most` pixels a side.
JpegKind RandomKind(int most, Random* random) {
  const auto below = [&](int bound) { return static_cast<int>((*random)() % bound); };
  constexpr J_COLOR_SPACE kColors[] = {JCS_GRAYSCALE, JCS_RGB, JCS_YCbCr, JCS_CMYK, JCS_YCCK};
  JpegKind kind;
  kind.height = 1 + below(most);
  kind.width = 1 + below(most);
  kind.stored = kColors[below(5)];
  const bool four = Components(kind.stored) == 4;  // an MCU has at most 10 blocks
  const auto& sampling = kSamplings[below(four ? 4 : 10)];
  kind.sampling = sampling[0];
  kind.sampling2 = sampling[1];
  kind.progressive = below(2) == 0;
  kind.arithmetic = below(3) == 0;
  kind.restart = below(2) * (1 + below(9));
  kind.quality = 20 + below(80);
  if (!kind.progressive && below(3) == 0) kind.scans = ScanEachComponent(Components(kind.stored));
  return kind;
}

TEST(Jpeg, WindowsAreThoseOfTheWhole) {
  Random random(1);
  for (int i = 0; i < 150; ++i) {
    const JpegKind kind = RandomKind(i % 3 == 0 ? 20 : 150, &random);
    const std::string file = RandomJpeg(kind, &random);
    const auto header = ReadJpegHeader(file).value();
    ASSERT_EQ(header.height, kind.height);
    ASSERT_EQ(header.width, kind.width);
    for (const int channels : {1, 3, 4}) {
      const Bytes whole = Components(kind.stored) == 4
                              ? Decoded(file, Whole(header), channels)
                              : ReadWholeJpeg(file, OutputColors(channels));
      ASSERT_EQ(Decoded(file, Whole(header), channels), whole) << i;
      for (int k = 0; k < 5; ++k) {
        const Window window = RandomWindowOf(header, &random);
        ASSERT_EQ(Decoded(file, window, channels), Cut(whole, kind.width, window, channels))
            << "picture " << i << " " << kind.height << " x " << kind.width << ", window "
            << window.top << " " << window.left << " " << window.height << " " << window.width;
      }
    }
  }
}

TEST(Jpeg, NarrowWindowsAreThoseOfTheWhole) {
  Random random(13);
  for (const auto& sampling : kSamplings) {
    for (const int width : {7, 35, 50}) {
      const JpegKind kind{
          .height = 9, .width = width, .sampling = sampling[0], .sampling2 = sampling[1]};
      const std::string file = RandomJpeg(kind, &random);
      const Bytes whole = ReadWholeJpeg(file, JCS_RGB);
      for (int64_t left = 0; left < width; ++left) {
        for (int64_t columns = 1; columns <= std::min<int64_t>(4, width - left); ++columns) {
          const Window window{left % 9, left, 1, columns};
          ASSERT_EQ(Decoded(file, window, 3), Cut(whole, width, window, 3))
              << sampling[0][0] << " " << sampling[0][1] << ", columns " << left << " of " << width;
        }
      }
    }
  }
}

TEST(Jpeg, InksAreMultiplied) {
  Random random(2);
  for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    const std::string file =
        RandomJpeg({.height = 31, .width = 45, .stored = stored, .sampling = {1, 1}}, &random);
    const Bytes inks = ReadWholeJpeg(file, JCS_CMYK);
    Bytes colors, grey, alpha;
    for (size_t i = 0; i < inks.size(); i += 4) {
      double luminance = 0.5;
      constexpr double kBt601[] = {19595 / 65536., 38470 / 65536., 7471 / 65536.};
      for (size_t c = 0; c < 3; ++c) {
        colors.push_back(static_cast<uint8_t>(inks[i + c] * inks[i + 3] / 255. + 0.5));
        alpha.push_back(colors.back());
        luminance += kBt601[c] * colors.back();
      }
      alpha.push_back(255);
      grey.push_back(static_cast<uint8_t>(luminance));
    }
    const Window whole{0, 0, 31, 45};
    EXPECT_EQ(Decoded(file, whole, 3), colors);
    EXPECT_EQ(Decoded(file, whole, 1), grey);
    EXPECT_EQ(Decoded(file, whole, 4), alpha);
  }
}

TEST(Jpeg, NoInkIsWhite) {
  // Adobe stores 255 for none.
  const JpegKind kind{.height = 3, .width = 2, .stored = JCS_CMYK, .sampling = {1, 1}};
  EXPECT_EQ(Decoded(WriteJpeg(kind, Bytes(24, 255)), {0, 0, 3, 2}, 3), Bytes(18, 255));
  EXPECT_EQ(Decoded(WriteJpeg(kind, Bytes(24, 0)), {0, 0, 3, 2}, 3), Bytes(18, 0));
}

TEST(Jpeg, InksAreThoseThatWereStored) {
  // 200 100 50 of 128: inverted inks.  Luma and chroma of YCCK round them.
  Bytes inks;
  for (int i = 0; i < 20 * 24; ++i) inks.insert(inks.end(), {200, 100, 50, 128});
  const auto far = [](const Bytes& pixels) {
    constexpr int kColor[] = {100, 50, 25};  // 200 * 128 / 255 ...
    int most = pixels.size() == 20 * 24 * 3 ? 0 : 255;
    for (size_t i = 0; i < pixels.size(); ++i)
      most = std::max(most, std::abs(pixels[i] - kColor[i % 3]));
    return most;
  };
  for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    for (const bool progressive : {false, true}) {
      const std::string file = WriteJpeg(
          {.height = 20, .width = 24, .stored = stored, .progressive = progressive, .quality = 100},
          inks);
      EXPECT_LE(far(Decoded(file, {0, 0, 20, 24}, 3)), 1) << stored << progressive;
    }
  }
  // A file that does not name Adobe is CMYK, and as much inverted.
  std::string file =
      WriteJpeg({.height = 20, .width = 24, .stored = JCS_CMYK, .quality = 100}, inks);
  const size_t adobe = file.find("\xff\xee");
  ASSERT_NE(adobe, file.npos);
  EXPECT_LE(far(Decoded(file.erase(adobe, 16), {0, 0, 20, 24}, 3)), 1);
}

// A progressive file that ends after some scan, as if a browser had drawn what has come.
TEST(Jpeg, LastScansMayBeAbsent) {
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    JpegKind kind = RandomKind(120, &random);
    kind.progressive = true;
    kind.scans.clear();
    const std::string file = RandomJpeg(kind, &random);
    std::vector<size_t> scans;
    for (size_t at = file.find("\xff\xda"); at != file.npos; at = file.find("\xff\xda", at + 2))
      scans.push_back(at);
    ASSERT_GE(scans.size(), 4u);
    const std::string part = file.substr(0, scans[1 + random() % (scans.size() - 1)]) + "\xff\xd9";
    const auto header = ReadJpegHeader(part).value();
    const Bytes whole = Decoded(part, Whole(header), 3);
    if (Components(kind.stored) < 4) {
      EXPECT_EQ(whole, ReadWholeJpeg(part, JCS_RGB));
    }
    for (int k = 0; k < 5; ++k) {
      const Window window = RandomWindowOf(header, &random);
      ASSERT_EQ(Decoded(part, window, 3), Cut(whole, kind.width, window, 3)) << i;
    }
  }
}

TEST(Jpeg, LargestExtents) {
  Random random(4);
  for (const bool tall : {false, true}) {
    const int longest = JPEG_MAX_DIMENSION;  // 65500
    const JpegKind kind{.height = tall ? longest : 1, .width = tall ? 1 : longest};
    const std::string file = RandomJpeg(kind, &random);
    const Bytes whole = ReadWholeJpeg(file, JCS_RGB);
    const Window end{kind.height - 1, kind.width - 1, 1, 1};
    EXPECT_EQ(Decoded(file, {0, 0, kind.height, kind.width}, 3), whole);
    EXPECT_EQ(Decoded(file, end, 3), Bytes(whole.end() - 3, whole.end()));
  }
}

TEST(Jpeg, OrientationIsOfTheFirstExif) {
  Random random(5);
  for (uint32_t orientation = 1; orientation <= 8; ++orientation) {
    const std::string file =
        RandomJpeg({.height = 5, .width = 9, .exif = ExifData(orientation, true)}, &random);
    // XMP is in APP1 as well.
    const std::string xmp("\xff\xe1\0\x08http:\0", 11);
    const size_t first = file.find("\xff\xe1");
    const std::string other = std::string(file).insert(first, xmp);
    for (const std::string& each : {file, other}) {
      const auto header = ReadJpegHeader(each).value();
      EXPECT_EQ(header.orientation, static_cast<int>(orientation));
      EXPECT_EQ(header.height, orientation >= 5 ? 9 : 5);
      EXPECT_EQ(header.width, orientation >= 5 ? 5 : 9);
      EXPECT_EQ(header.format, PictureFormat::kJpeg);
    }
  }
}

TEST(Jpeg, HeadersOdditiesAreNoFaults) {
  Random random(6);
  const std::string file = RandomJpeg({.height = 20, .width = 30}, &random);
  const auto with = [&](size_t at, std::string_view bytes) {
    return std::string(file).replace(at, bytes.size(), bytes);
  };
  EXPECT_TRUE(Fault(with(11, "\x07")).ok());                        // JFIF 7
  EXPECT_TRUE(Fault(std::string(file).insert(2, "\1\2\3")).ok());   // between segments
  EXPECT_TRUE(Fault(with(file.find("\xff\xda") + 12, "\1")).ok());  // a scan's last coefficient
  EXPECT_TRUE(Fault(file + std::string(100000, '\xff') + "more").ok());  // behind the end
  for (const bool progressive : {false, true}) {
    std::string padded =
        RandomJpeg({.height = 20, .width = 30, .progressive = progressive}, &random);
    const size_t end = padded.size() - 2;
    EXPECT_TRUE(Fault(std::string(padded).insert(end, std::string(100, '\1'))).ok());
    // Pixels that were not decoded.  Of one scan nothing is read behind the window.
    std::string pixels(100, '\0');
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i);
    EXPECT_EQ(Fault(padded.insert(end, pixels)).ok(), !progressive);
  }
}

TEST(Jpeg, EveryTruncationIsNoticedInEveryWindow) {
  Random random(7);
  for (const bool progressive : {false, true}) {
    const std::string file = RandomJpeg({.height = 25,
                                         .width = 40,
                                         .progressive = progressive,
                                         .restart = 2,
                                         .exif = ExifData(3, true) + "a thumbnail\xff\xd9"},
                                        &random);
    ASSERT_TRUE(Fault(file).ok());
    for (size_t size = 0; size < file.size(); ++size) {
      const std::string_view part = std::string_view(file).substr(0, size);
      const auto header = ReadJpegHeader(part);
      if (!header.ok()) {
        EXPECT_EQ(header.status().code(), absl::StatusCode::kDataLoss);
        continue;
      }
      uint8_t pixel[3];
      const absl::Status status = DecodeJpeg(part, *header, {0, 0, 1, 1}, {}, pixel);
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << " of " << file.size();
      ASSERT_EQ(Fault(part).code(), absl::StatusCode::kDataLoss) << size;
    }
  }
}

TEST(Jpeg, DamageAboveTheWindowsEndIsNoticed) {
  Random random(8);
  const std::string file = RandomJpeg({.height = 200, .width = 100}, &random);
  // A marker where there is data, halfway.
  const std::string damaged = std::string(file).replace(file.size() / 2, 2, "\xff\xd5");
  const auto header = ReadJpegHeader(damaged).value();
  Bytes pixels(200 * 100 * 3);
  const auto status = [&](const Window& window) {
    return DecodeJpeg(damaged, header, window, {}, pixels.data());
  };
  EXPECT_EQ(status({0, 0, 50, 100}), absl::OkStatus());
  for (const Window& window : {Window{0, 0, 200, 100}, Window{190, 50, 1, 1}})
    EXPECT_EQ(status(window), absl::DataLossError("the JPEG is truncated or damaged: Corrupt JPEG "
                                                  "data: premature end of data segment"));
}

TEST(Jpeg, DataOfNoPixelAreNoticedAtTheEnd) {
  Random random(18);
  for (const bool progressive : {false, true}) {
    const std::string file =
        RandomJpeg({.height = 40, .width = 30, .progressive = progressive}, &random);
    const auto fault = [&](const std::string& before_end, bool to_end) {
      const std::string changed = std::string(file).insert(file.size() - 2, before_end);
      const auto header = ReadJpegHeader(changed);
      Bytes pixels(30 * 3);
      return std::string(
          DecodeJpeg(changed, *header, {39, 0, 1, 30}, {}, pixels.data(), to_end).message());
    };
    EXPECT_EQ(fault("", true), "");
    EXPECT_EQ(fault(std::string(40, '\0'), true), "");  // cameras' padding
    const std::string more = "bytes of which libjpeg makes no pixel at all";
    EXPECT_EQ(fault(more, false).empty(), !progressive);
    EXPECT_TRUE(fault(more, true).ends_with("extraneous bytes before marker 0xd9"))
        << fault(more, true);
  }
}

TEST(Jpeg, Messages) {
  Random random(9);
  const std::string file = RandomJpeg({.height = 20, .width = 30}, &random);
  EXPECT_EQ(Fault(file.substr(0, file.size() - 1)),
            absl::DataLossError("expected a JPEG that ends with bytes ff d9, got one that ends "
                                "without at byte " +
                                std::to_string(file.size() - 1) + ": it is truncated"));
  EXPECT_EQ(Fault(file.substr(0, 50)),
            absl::DataLossError("the JPEG is truncated or damaged: Premature end of JPEG file"));
  EXPECT_EQ(Fault("\xff\xd8\xff"),
            absl::DataLossError("the JPEG is truncated or damaged: Premature end of JPEG file"));
  EXPECT_EQ(Fault("text").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Fault("").code(), absl::StatusCode::kDataLoss);

  const size_t frame = file.find("\xff\xc0");
  const auto with = [&](size_t at, std::string_view bytes) {
    return Fault(std::string(file).replace(frame + at, bytes.size(), bytes));
  };
  const std::string unread = "a JPEG of a kind that libjpeg does not read: ";
  EXPECT_EQ(with(4, "\x0c"), absl::InvalidArgumentError(  // bits
                                 unread + "Unsupported JPEG data precision 12"));
  EXPECT_EQ(with(1, "\xc3"), absl::InvalidArgumentError(  // lossless
                                 unread + "Unsupported JPEG process: SOF type 0xc3"));
  EXPECT_EQ(with(5, std::string(2, '\0')),
            absl::DataLossError("the JPEG is truncated or damaged: Empty JPEG image (DNL not "
                                "supported)"));
}

TEST(Jpeg, TwoComponentsAreRefused) {
  Random random(10);
  std::string file = RandomJpeg({.height = 8,
                                 .width = 8,
                                 .stored = JCS_RGB,
                                 .sampling = {1, 1},
                                 .scans = ScanEachComponent(3)},
                                &random);
  // The frame without its third component: two in a segment of 3 bytes less.
  const size_t frame = file.find("\xff\xc0");
  file[frame + 3] = 14, file[frame + 9] = 2;
  file.erase(frame + 10 + 6, 3);
  EXPECT_EQ(Fault(file),
            absl::InvalidArgumentError("expected a JPEG of 1, 3 or 4 components, got 2"));
}

TEST(Jpeg, ScansAreBounded) {
  Random random(11);
  JpegKind kind{.height = 40, .width = 50, .stored = JCS_GRAYSCALE};
  kind.scans = ScanEachCoefficient(1);  // 64
  EXPECT_TRUE(Fault(RandomJpeg(kind, &random)).ok());
  kind.stored = JCS_YCbCr;
  kind.scans = ScanEachCoefficient(3);
  EXPECT_EQ(Fault(RandomJpeg(kind, &random)),
            absl::DataLossError(
                "the JPEG is truncated or damaged: expected at most 100 scans, got more"));
}

TEST(Jpeg, ArithmeticCodeMayEndEarlyByFewPixels) {
  // Of one colour, so that the code has hardly a byte.
  for (const bool progressive : {false, true}) {
    const JpegKind kind{
        .height = 1000, .width = 1000, .progressive = progressive, .arithmetic = true};
    const std::string file = WriteJpeg(kind, Bytes(3000000, 128));
    EXPECT_EQ(Decoded(file, {0, 0, 1000, 1000}, 3), Bytes(3000000, 128));
    std::string vast = file;
    const size_t frame = vast.find(progressive ? "\xff\xca" : "\xff\xc9");
    vast.replace(frame + 5, 4, std::string("\x40\0\x40\0", 4));  // 16384 x 16384
    const auto header = ReadJpegHeader(vast).value();
    ASSERT_EQ(header.height, 16384);
    for (const Window& window : {Window{0, 0, 99, 2}, Window{16383, 16383, 1, 1}}) {
      uint8_t pixels[99 * 2 * 3];
      EXPECT_THAT(DecodeJpeg(vast, header, window, {}, pixels).ToString(),
                  testing::AllOf(testing::StartsWith("DATA_LOSS: "),
                                 testing::HasSubstr("the arithmetic code ends ")));
    }
  }
}

TEST(Jpeg, ArithmeticCodeGoesOnBehindARestart) {
  // More pixels than may be implied, so that each restart marker comes early.
  const JpegKind kind{
      .height = 4200, .width = 4200, .stored = JCS_GRAYSCALE, .arithmetic = true, .restart = 5000};
  const std::string file = WriteJpeg(kind, Bytes(4200 * 4200, 128));
  EXPECT_EQ(Decoded(file, {4199, 0, 1, 4200}, 1), Bytes(4200, 128));
  EXPECT_TRUE(Fault(file).ok());
}

TEST(Jpeg, DamagedFilesGivePixelsOrAnError) {
  Random random(12);
  int noticed = 0;
  constexpr int kFiles = 1500;
  for (int i = 0; i < kFiles; ++i) {
    std::string file = RandomJpeg(RandomKind(60, &random), &random);
    const size_t damages = 1 + random() % 8;
    for (size_t k = 0; k < damages; ++k) {
      const size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file[at] = static_cast<char>(file[at] ^ 1 << random() % 8);
          break;
        case 2:
          file.erase(at, random() % 20);
          break;
        default:
          file.insert(at, file.substr(random() % file.size(), random() % 20));
      }
    }
    const auto header = ReadJpegHeader(file);
    if (!header.ok() || header->height * header->width > 1 << 20) {
      ++noticed;
      continue;
    }
    const Window window = i % 2 == 0 ? Whole(*header) : RandomWindowOf(*header, &random);
    Bytes pixels(static_cast<size_t>(window.height * window.width * 4));
    noticed += !DecodeJpeg(file, *header, window, {.channels = 4}, pixels.data()).ok();
  }
  EXPECT_GT(noticed, kFiles / 2);
}

}  // namespace
}  // namespace gyre
