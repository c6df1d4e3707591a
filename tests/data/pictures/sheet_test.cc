// Sheets of pictures: where pictures lie, and that text is drawn.
#include "engine/data/pictures/sheet.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/data/pictures/picture.h"

namespace gyre {
namespace {

constexpr int64_t kMargin = 8, kTitle = 22;

struct Drawn {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;

  std::vector<uint8_t> At(int64_t y, int64_t x) const {
    const auto first = pixels.begin() + (y * width + x) * 3;
    return {first, first + 3};
  }
  // Pixels darker than half within a window.
  int64_t Ink(const Window& window) const {
    int64_t ink = 0;
    for (int64_t y = window.top; y < window.top + window.height; ++y) {
      for (int64_t x = window.left; x < window.left + window.width; ++x) ink += At(y, x)[0] < 128;
    }
    return ink;
  }
};

Drawn Read(const std::string& file) {
  const PictureHeader header = ReadPictureHeader(file, 1 << 28).value();
  Drawn drawn{header.height, header.width, {}};
  drawn.pixels.resize(static_cast<size_t>(header.height * header.width * 3));
  const absl::Status status =
      DecodePicture(file, header, {0, 0, header.height, header.width}, {}, drawn.pixels.data());
  EXPECT_TRUE(status.ok()) << status;
  return drawn;
}

Drawn Draw(const Sheet& sheet) { return Read(DrawSheet(sheet).value()); }

// Pictures of one colour each.
Sheet SheetOfColors(int64_t count, int64_t height, int64_t width) {
  Sheet sheet{.title = "title", .height = height, .width = width};
  for (int64_t i = 0; i < count; ++i) {
    CaptionedPicture picture;
    for (int64_t p = 0; p < height * width; ++p) {
      picture.pixels.insert(picture.pixels.end(), {static_cast<uint8_t>(i), 100, 200});
    }
    sheet.pictures.push_back(picture);
  }
  return sheet;
}

// 30 x 40 is drawn three times as large: 90 x 120, with a frame of 1 and 16 rows of text.
TEST(Sheet, PicturesLieRowByRow) {
  const Drawn drawn = Draw(SheetOfColors(7, 30, 40));
  constexpr int64_t kDown = 90 + 2 + 16 + 8, kRight = 120 + 2 + 8;
  const int64_t columns = 5;  // as wide as a title
  EXPECT_EQ(drawn.width, 5 * kRight + kMargin);
  EXPECT_EQ(drawn.height, kMargin + kTitle + 2 * kDown + kMargin);
  for (int64_t i = 0; i < 7; ++i) {
    const int64_t top = kMargin + kTitle + i / columns * kDown + 1;
    const int64_t left = kMargin + i % columns * kRight + 1;
    const std::vector<uint8_t> color = {static_cast<uint8_t>(i), 100, 200};
    EXPECT_EQ(drawn.At(top, left), color);
    EXPECT_EQ(drawn.At(top + 89, left + 119), color);
    EXPECT_EQ(drawn.At(top - 1, left), (std::vector<uint8_t>{160, 160, 160}));
    EXPECT_EQ(drawn.At(top + 91, left), (std::vector<uint8_t>{255, 255, 255}));
  }
}

TEST(Sheet, LargePicturesKeepTheirSize) {
  const Drawn drawn = Draw(SheetOfColors(1, 1, 700));
  EXPECT_EQ(drawn.width, 700 + 2 + 2 * kMargin);
  EXPECT_EQ(drawn.height, kMargin + kTitle + 1 + 2 + 16 + 2 * kMargin);
  // 112 pixels, the least, and a frame and a gap.
  EXPECT_EQ(SheetBytesOf(1, 1), 3 * (112 + 2 + 16 + 8) * (112 + 2 + 8));
}

TEST(Sheet, TextIsDrawnAndCut) {
  const Window caption{kMargin + kTitle + 112 + 2, kMargin, 16, 114};
  Sheet sheet = SheetOfColors(2, 1, 1);
  const auto ink = [&](const std::string& text) {
    sheet.pictures[0].caption = text;
    return Draw(sheet).Ink(caption);
  };
  EXPECT_EQ(ink(""), 0);
  EXPECT_GT(ink("i"), 3);
  EXPECT_GT(ink("star"), ink("i"));
  EXPECT_EQ(ink("\xc3\xa4\n"), ink("??"));
  const std::string middle(100, 'W');
  EXPECT_NE(ink("a" + middle + "iii"), ink("a" + middle + "WWW"));
  EXPECT_NE(ink("iii" + middle), ink("WWW" + middle));
  const std::string longest(1000, 'W');
  EXPECT_GT(ink(longest), ink("WWW"));
  const Drawn drawn = Draw(sheet);
  EXPECT_EQ(drawn.Ink({caption.top, caption.left + 114, 16, 8}), 0);  // none beside its cell
  EXPECT_GT(drawn.Ink({0, 0, kMargin + kTitle, 200}), 20);
}

TEST(Sheet, SquaresHaveNames) {
  constexpr int64_t kNames = 150 + kMargin, kCell = 40;
  NamedSquare square{"labels", "predictions", {"cat", "", "W"}, {1, 0, 0, 0, 0.2, 0.8, 0, 0, 0}};
  const Drawn drawn = Read(DrawSquare(square).value());
  EXPECT_EQ(drawn.height, kNames + 3 * kCell);
  EXPECT_EQ(drawn.width, kNames + 3 * kCell);
  const auto shade = [&](int64_t row, int64_t column) {
    return drawn.At(kNames + row * kCell + 39, kNames + column * kCell + 39)[0];
  };
  EXPECT_EQ(shade(0, 0), 0);
  EXPECT_EQ(shade(1, 1), 204);
  EXPECT_EQ(shade(1, 2), 51);
  EXPECT_EQ(shade(2, 1), 255);
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t row = drawn.Ink({kNames + i * kCell, 0, kCell, kNames});
    EXPECT_EQ(row > 0, i != 1) << row;
    EXPECT_EQ(drawn.Ink({0, kNames + i * kCell, kNames, kCell}), row);  // turned
  }
  // Cells of 10 pixels.
  square.names.assign(100, "name");
  square.shares.assign(10'000, 0.5);
  EXPECT_EQ(Read(DrawSquare(square).value()).height, 1000);
}

}  // namespace
}  // namespace gyre
