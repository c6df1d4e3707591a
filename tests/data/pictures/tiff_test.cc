#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/data/pictures/imgcodecs/imgcodecs.h"
#include "tests/data/pictures/tiff_fixture.h"

namespace gyre {
namespace {

TEST(Tiff, EveryKindAndWindowIsRight) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i < std::size(kTiffKinds); ++i) {
    const TiffKind& kind = kTiffKinds[i];
    ExpectOther(RandomTiff(kind, &random), kind.height, kind.width, &random);
    ASSERT_FALSE(HasFatalFailure()) << "kind " << i;
  }
}

// The file of strips of random bytes, [20, 30], whose colours have one value for 2 x 2 pixels.
std::string SubsampledTiff(uint16_t packing, std::mt19937_64* random) {
  const TempFolder folder;
  TIFF* const tiff = TIFFOpen((folder / "a.tif").c_str(), "w");
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 30);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 20);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 3);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_YCBCR);
  TIFFSetField(tiff, TIFFTAG_YCBCRSUBSAMPLING, 2, 2);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, packing);
  TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 16);
  if (packing == COMPRESSION_JPEG) {
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    for (uint32_t y = 0; y < 20; ++y) {
      std::vector<uint8_t> row(90);
      for (uint8_t& value : row) value = static_cast<uint8_t>(10 * y + (*random)() % 50);
      GYRE_CHECK(TIFFWriteScanline(tiff, row.data(), y, 0) >= 0);
    }
  } else {
    for (uint32_t strip = 0; strip < 2; ++strip) {
      std::vector<uint8_t> bytes(static_cast<size_t>(TIFFVStripSize(tiff, strip == 0 ? 16 : 4)));
      for (uint8_t& value : bytes) value = static_cast<uint8_t>((*random)());
      GYRE_CHECK(TIFFWriteEncodedStrip(tiff, strip, bytes.data(),
                                       static_cast<tmsize_t>(bytes.size())) >= 0);
    }
  }
  TIFFClose(tiff);
  return ReadBytes(folder / "a.tif");
}

TEST(Tiff, WindowsOfSubsampledColoursAreThoseOfAll) {
  std::mt19937_64 random(1);
  for (const uint16_t packing : {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_JPEG}) {
    const std::string file = SubsampledTiff(packing, &random);
    const auto header = ReadOtherHeader(file).value();
    const auto all = *DecodeWindow(&DecodeOther, file, header, {0, 0, 20, 30}, {.channels = 3});
    OtherPicture picture = {file, {}};
    for (size_t i = 0; i < all.size(); i += 3) {
      picture.pixels.push_back({all[i], all[i + 1], all[i + 2], 255});
    }
    for (int i = 0; i < 20; ++i) ExpectOther(picture, 20, 30, &random);
  }
}

TEST(Tiff, DamageOfAJpegStripIsAnError) {
  std::mt19937_64 random(1);
  std::string file = SubsampledTiff(COMPRESSION_JPEG, &random);
  const size_t end = file.find("\xff\xd9", file.find("\xff\xda"));
  ASSERT_NE(end, file.npos);
  file.replace(end - 20, 22, 22, '\0');
  EXPECT_THAT(ErrorOfOther(file).ToString(),
              testing::StartsWith("DATA_LOSS: the TIFF is truncated or damaged: "));
}

// The file, of little-endian bytes, with another value of a tag that it has.
std::string WithTag(std::string file, uint16_t tag, uint32_t value) {
  const auto integer = [&](size_t at, int bytes) {
    uint32_t read = 0;
    std::memcpy(&read, &file[at], bytes);
    return read;
  };
  const size_t directory = integer(4, 4);
  for (uint32_t i = 0; i < integer(directory, 2); ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (integer(entry, 2) != tag) continue;
    const uint16_t type = TIFF_LONG;
    std::memcpy(&file[entry + 2], &type, sizeof(type));
    std::memcpy(&file[entry + 8], &value, sizeof(value));
    return file;
  }
  GYRE_CHECK(false);
}

// libtiff warns and goes on.
TEST(Tiff, StripsOfAnotherSizeAreErrors) {
  std::mt19937_64 random(1);
  const std::string jpeg = SubsampledTiff(COMPRESSION_JPEG, &random);  // of 16 and 4 rows
  EXPECT_THAT(ErrorOfOther(WithTag(jpeg, TIFFTAG_IMAGELENGTH, 30)).ToString(),
              testing::StartsWith("DATA_LOSS: the TIFF is truncated or damaged: Improper JPEG"));
  EXPECT_EQ(ErrorOfOther(WithTag(jpeg, TIFFTAG_IMAGELENGTH, 1 << 20)).ToString(),
            absl::StrCat("DATA_LOSS: expected at least 122880 bytes of a TIFF of JPEGs of 30 x "
                         "1048576, got ",
                         jpeg.size(), ": it is truncated or damaged"));
  std::string packed = RandomTiff({.packing = COMPRESSION_PACKBITS}, &random).file;
  packed[8] = '\x81';  // 128 bytes of a strip of 90
  EXPECT_EQ(ErrorOfOther(packed).ToString(),
            "DATA_LOSS: the TIFF is truncated or damaged: Discarding 38 bytes to avoid buffer "
            "overrun");
  const std::string fax = RandomTiff({.samples = 1,
                                      .depth = 1,
                                      .photometric = PHOTOMETRIC_MINISWHITE,
                                      .packing = COMPRESSION_CCITTFAX4},
                                     &random)
                              .file;
  EXPECT_EQ(ErrorOfOther(WithTag(fax, TIFFTAG_IMAGEWIDTH, 1 << 28)).ToString(),
            "DATA_LOSS: expected a TIFF of 1 to 1048576 pixels a side, got 268435456 x 7");
}

TEST(Tiff, PackedRunsMayCrossRows) {
  const TempFolder folder;
  TIFF* const tiff = TIFFOpen((folder / "a.tif").c_str(), "w");
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 3);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 4);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, COMPRESSION_PACKBITS);
  TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 4);
  uint8_t packed[] = {0xf9, 77, 3, 1, 2, 3, 4};  // 77 eight times, four bytes
  GYRE_CHECK(TIFFWriteRawStrip(tiff, 0, packed, sizeof(packed)) >= 0);
  TIFFClose(tiff);
  const std::string file = ReadBytes(folder / "a.tif");
  const auto header = ReadOtherHeader(file).value();
  const auto pixels = *DecodeWindow(&DecodeOther, file, header, {1, 0, 3, 3}, {.channels = 1});
  EXPECT_EQ(pixels, (std::vector<uint8_t>{77, 77, 77, 77, 77, 1, 2, 3, 4}));
}

TEST(Tiff, ARowOfTilesHasABound) {
  std::mt19937_64 random(1);
  std::string file = RandomTiff({.height = 40, .width = 35, .tiled = true}, &random).file;
  file = WithTag(WithTag(file, TIFFTAG_IMAGELENGTH, 1 << 20), TIFFTAG_TILELENGTH, 1 << 20);
  const auto header = ReadOtherHeader(file).value();
  EXPECT_EQ(DecodeWindow(&DecodeOther, file, header, {0, 0, 1, 1}, {}).status(),
            absl::InvalidArgumentError("expected a TIFF of at most 16777216 pixels in a row of "
                                       "tiles, got 35 x 1048576; convert it to lower ones"));
}

TEST(Tiff, OrientationsAreHandedOn) {
  std::mt19937_64 random(1);
  for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
    const OtherPicture picture = RandomTiff({.orientation = orientation}, &random);
    const auto header = ReadOtherHeader(picture.file).value();
    EXPECT_EQ(header.orientation, orientation);
    EXPECT_EQ(header.height, orientation >= 5 ? 10 : 7);
    EXPECT_EQ(header.width, orientation >= 5 ? 7 : 10);
    const auto stored = DecodeWindow(&DecodeOther, picture.file, header, {0, 0, 7, 10}, {}).value();
    EXPECT_EQ(stored, Formatted(picture.pixels, {}));
  }
}

TEST(Tiff, SamplesThatAreNoBytesAreRefused) {
  const TempFolder folder;
  const auto error = [&](uint16_t format, int depth) {
    TIFF* const tiff = TIFFOpen((folder / "a.tif").c_str(), "w");
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 1);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, depth);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, format);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    uint64_t value = 0;
    GYRE_CHECK(TIFFWriteScanline(tiff, &value, 0, 0) >= 0);
    TIFFClose(tiff);
    return ErrorOfOther(ReadBytes(folder / "a.tif")).ToString();
  };
  constexpr char kStart[] =
      "INVALID_ARGUMENT: expected a TIFF of unsigned integers of at most 16 bits, got ";
  EXPECT_EQ(error(SAMPLEFORMAT_IEEEFP, 32), absl::StrCat(kStart, "reals of 32 bits"));
  EXPECT_EQ(error(SAMPLEFORMAT_INT, 16), absl::StrCat(kStart, "signed integers of 16 bits"));
  EXPECT_EQ(error(SAMPLEFORMAT_UINT, 32), absl::StrCat(kStart, "samples of 32 bits"));
  EXPECT_THAT(error(SAMPLEFORMAT_UINT, 12),
              testing::HasSubstr("expected a TIFF that libtiff can "));
}

TEST(Tiff, DamageOfPackedRowsIsAnError) {
  std::mt19937_64 random(1);
  std::string file = RandomTiff({.packing = COMPRESSION_ADOBE_DEFLATE}, &random).file;
  ASSERT_TRUE(ErrorOfOther(file).ok());
  file.replace(12, 3, "\xff\xff\xff");  // the first strip follows a header of 8 bytes
  testing::internal::CaptureStderr();
  EXPECT_THAT(std::string(ErrorOfOther(file).message()),
              testing::StartsWith("the TIFF is truncated or damaged: "));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace gyre
