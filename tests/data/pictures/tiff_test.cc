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

TEST(Tiff, OrientationsAreHandedOn) {
  std::mt19937_64 random(1);
  for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
    const OtherPicture picture = RandomTiff({.orientation = orientation}, &random);
    const auto header = ReadOtherHeader(picture.file);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->orientation, orientation);
    EXPECT_EQ(header->height, orientation >= 5 ? 10 : 7);
    EXPECT_EQ(header->width, orientation >= 5 ? 7 : 10);
    const auto stored = DecodeWindow(&DecodeOther, picture.file, *header, {0, 0, 7, 10}, {});
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(*stored, Formatted(picture.pixels, {}));
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
