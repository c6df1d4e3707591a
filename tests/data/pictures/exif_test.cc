#include "engine/data/pictures/exif.h"

#include <gtest/gtest.h>

#include "tests/data/pictures/jpeg_fixture.h"

namespace gyre {
namespace {

constexpr uint32_t kByte = 1, kShort = 3, kLong = 4;

TEST(ExifOrientation, OfBothByteOrdersAndTypes) {
  for (const bool big_endian : {false, true}) {
    for (const uint32_t type : {kShort, kLong}) {
      for (int orientation = 1; orientation <= 8; ++orientation) {
        const std::string data = ExifData(static_cast<uint32_t>(orientation), big_endian, type);
        EXPECT_EQ(ExifOrientation(data), orientation);
        EXPECT_EQ(ExifOrientation(std::string("Exif\0\0", 6) + data), orientation);
        EXPECT_EQ(ExifOrientation(std::string("Exif\0\xff", 6) + data + "more"), orientation);
      }
    }
  }
}

TEST(ExifOrientation, OtherValuesAreAsStored) {
  for (const uint32_t value : {0u, 9u, 255u, 256u, 0x0600u, 65535u}) {
    EXPECT_EQ(ExifOrientation(ExifData(value, false)), 1) << value;
    EXPECT_EQ(ExifOrientation(ExifData(value, true)), 1) << value;
  }
  EXPECT_EQ(ExifOrientation(ExifData(0x60000, true, kLong)), 1);
  EXPECT_EQ(ExifOrientation(ExifData(6, false, kByte)), 1);
}

TEST(ExifOrientation, BrokenDataIsAsStored) {
  EXPECT_EQ(ExifOrientation(""), 1);
  EXPECT_EQ(ExifOrientation("Exif"), 1);
  EXPECT_EQ(ExifOrientation(std::string("Exif\0\0", 6)), 1);
  EXPECT_EQ(ExifOrientation("IIMM*"), 1);
  for (const bool big_endian : {false, true}) {
    const std::string whole = ExifData(6, big_endian);
    // The tag's value ends 4 bytes, the offset of a next directory, before the data does.
    for (size_t size = 0; size <= whole.size(); ++size)
      EXPECT_EQ(ExifOrientation(whole.substr(0, size)), size + 4 < whole.size() ? 1 : 6) << size;
    const auto with = [&](size_t at, std::string_view bytes) {
      return std::string(whole).replace(at, bytes.size(), bytes);
    };
    EXPECT_EQ(ExifOrientation(with(0, "XX")), 1);
    EXPECT_EQ(ExifOrientation(with(0, big_endian ? "II" : "MM")), 1);
    EXPECT_EQ(ExifOrientation(with(2, "++")), 1);
    EXPECT_EQ(ExifOrientation(with(4, "\xff\xff\xff\xff")), 1);  // the directory's offset
    EXPECT_EQ(ExifOrientation(with(4, "\x7f\x7f\x7f\x7f")), 1);
    EXPECT_EQ(ExifOrientation(with(8, "\xff\xff")), 6);  // more entries than there are
    EXPECT_EQ(ExifOrientation(with(8, std::string(2, '\0'))), 1);
    EXPECT_EQ(ExifOrientation(with(26, "\x02\x02\x02\x02")), 1);  // the tag's count
  }
}

TEST(ExifOrientation, RandomBytesGiveOneOfEight) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string data = ExifData(1 + i % 8, i % 2 == 0);
    for (int k = 0; k < 3; ++k) data[random() % data.size()] = static_cast<char>(random());
    data.resize(random() % (data.size() + 1));
    const int orientation = ExifOrientation(data);
    EXPECT_TRUE(orientation >= 1 && orientation <= 8);
  }
}

}  // namespace
}  // namespace gyre
