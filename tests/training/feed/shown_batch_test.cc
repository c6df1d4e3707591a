// The first batch as a sheet: the bytes of the pictures come back from what the net is fed.
#include "engine/training/feed/shown_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/data/pictures/picture.h"
#include "tests/data/array_bytes.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using Rgb = std::vector<uint8_t>;

class ShownBatchTest : public testing::Test {
 protected:
  // A net of these inputs on data that text says, in order of the file.
  absl::StatusOr<ShownBatch> Show(const std::string& inputs, const std::string& arrays,
                                  const std::string& more = "") {
    auto net = *ParseNetText(
        absl::StrCat("name: 'n' ", inputs, " layer { name: 'fc' dense { outputs: 2 } }"), "net");
    auto trainer = *ParseTrainerText(
        absl::StrCat("net: 'n' batch: 3 steps: 1 optimizer { sgd {} } learning_rate { base: 1 } ",
                     "data { order: CONTIGUOUS train { arrays { ", arrays, " } } ", more, "}"),
        folder_ / "t");
    const auto data = OpenData(trainer, net, /*train=*/true).value();
    const auto device = NewCpuDevice({});
    return ShowBatch(trainer, net, data, *device);
  }
  // The pixel (y, x) of the picture i of a sheet of 2 x 4 pixels, which are 28 times as large.
  Rgb PixelOf(const ShownBatch& shown, int64_t i, int64_t y, int64_t x) const {
    const PictureHeader header = ReadPictureHeader(shown.png, 1 << 28).value();
    constexpr int64_t kTimes = 28, kRight = kTimes * 4 + 2 + 8;
    Rgb pixel(3);
    const Window at{8 + 22 + 1 + kTimes * y + 14, 8 + kRight * i + 1 + kTimes * x + 14, 1, 1};
    EXPECT_TRUE(DecodePicture(shown.png, header, at, {}, pixel.data()).ok());
    return pixel;
  }

  TempFolder folder_;
};

constexpr char kGrey[] = "input { name: 'image' dims: [2, 4, 1] } ";
constexpr char kImage[] = "array { input: 'image' file: 'x.npy' } ";

TEST_F(ShownBatchTest, NormalizationIsUndone) {
  const std::string bytes = RandomBytes(6 * 24, 1);
  WriteBytes(folder_ / "x.npy", Npy("|u1", "(6, 2, 4, 3)", bytes));
  const auto shown = *Show("input { name: 'image' dims: [2, 4, 3] }", kImage,
                           "normalization { mean: [0.1, 0.5, 2] std: [0.3, 7, 0.01] }");
  EXPECT_EQ(shown.title,
            "n: 3 of the 3 pictures of the first batch, as input \"image\" [2, 4, 3] gets them");
  // Rows of two samples each.
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t p = 0; p < 8; ++p) {
      const auto* first = reinterpret_cast<const uint8_t*>(bytes.data()) + (2 * i * 8 + p) * 3;
      EXPECT_EQ(PixelOf(shown, i, p / 4, p % 4), Rgb(first, first + 3)) << i << " " << p;
    }
  }
}

TEST_F(ShownBatchTest, RealsAreStretched) {
  std::string reals;
  for (const float x : {-5.F, 5.F, 0.F, 5.F, 5.F, 5.F, 5.F, 5.F}) {
    reals.append(reinterpret_cast<const char*>(&x), 4);
  }
  WriteBytes(folder_ / "x.npy",
             Npy("<f4", "(3, 2, 4, 1)", reals + std::string(64, '\0')));  // two are all 0
  const auto shown = Show(kGrey, kImage).value();
  EXPECT_EQ(PixelOf(shown, 0, 0, 0), Rgb(3, 0));
  EXPECT_EQ(PixelOf(shown, 0, 0, 1), Rgb(3, 255));
  EXPECT_EQ(PixelOf(shown, 0, 0, 2), Rgb(3, 128));
  EXPECT_EQ(PixelOf(shown, 1, 0, 0), Rgb(3, 0));
}

TEST_F(ShownBatchTest, FaultySamplesAreLeftOut) {
  std::string reals;
  for (const float x : {0.F, 5.F, std::nanf(""), 5.F, 9.F, 1.F}) {
    for (int i = 0; i < 8; ++i) reals.append(reinterpret_cast<const char*>(&x), 4);
  }
  WriteBytes(folder_ / "x.npy", Npy("<f4", "(6, 2, 4, 1)", reals));
  const auto error = [&](const std::string& most) {
    return Show(absl::StrCat(kGrey, "input { name: 'weight' }"), kImage, most);
  };
  const auto shown = error("max_bad_samples: 1").value();
  EXPECT_EQ(shown.title,
            "n: 2 of the 3 pictures of the first batch, as input \"image\" [2, 4, 1] gets them");
  ASSERT_EQ(shown.left_out.size(), 1u);
  EXPECT_THAT(shown.left_out[0], testing::HasSubstr("sample 2 (the first is 0)"));
  const std::string none(error("").status().message());
  EXPECT_THAT(none, testing::HasSubstr("the first batch: 1 sample could not be read, more"));
}

TEST_F(ShownBatchTest, AlphaLiesOverSquares) {
  std::string bytes(3 * 8 * 4, '\xff');
  bytes[3] = 0;  // the first pixel is transparent
  WriteBytes(folder_ / "x.npy", Npy("|u1", "(3, 2, 4, 4)", bytes));
  const auto shown = Show("input { name: 'image' dims: [2, 4, 4] }", kImage).value();
  EXPECT_EQ(PixelOf(shown, 0, 0, 0), Rgb(3, 230));
  EXPECT_EQ(PixelOf(shown, 0, 0, 1), Rgb(3, 255));
}

// Beside its picture: black, red, and grey where it is ignored.
TEST_F(ShownBatchTest, MasksAreColoured) {
  WriteBytes(folder_ / "x.npy", Npy("|u1", "(3, 2, 2, 1)", std::string(12, '\x40')));
  std::string classes;
  for (int32_t i = 0; i < 12; ++i) {
    const int32_t number = i % 4 - 1;
    classes.append(reinterpret_cast<const char*>(&number), 4);
  }
  WriteBytes(folder_ / "y.npy", Npy("<i4", "(3, 2, 2)", classes));
  const auto shown = *Show(
      "input { name: 'image' dims: [2, 2, 1] } input { name: 'label' dims: [2, 2] type: LABEL }",
      absl::StrCat(kImage, "array { input: 'label' file: 'y.npy' }"));
  EXPECT_EQ(PixelOf(shown, 1, 1, 1), Rgb(3, 0x40));
  EXPECT_EQ(PixelOf(shown, 1, 0, 2), Rgb(3, 128));
  EXPECT_EQ(PixelOf(shown, 1, 0, 3), Rgb(3, 0));
  EXPECT_EQ(PixelOf(shown, 1, 1, 2), (Rgb{128, 0, 0}));
  EXPECT_EQ(PixelOf(shown, 1, 1, 3), (Rgb{0, 128, 0}));
}

TEST_F(ShownBatchTest, CaptionsAreLabels) {
  const std::vector<std::string> classes = {"cat", "dog"};
  EXPECT_EQ(CaptionOf({1}, true, classes), "dog");
  EXPECT_EQ(CaptionOf({2}, true, classes), "2");
  EXPECT_EQ(CaptionOf({-1}, true, {}), "-1");
  EXPECT_EQ(CaptionOf({1, 0}, true, classes), "1 0");
  EXPECT_EQ(CaptionOf({0, 1, 0}, false, classes), "dog");
  EXPECT_EQ(CaptionOf({0.25, 0.125, 0.625}, false, classes), "2 0.62, cat 0.25");
  EXPECT_EQ(CaptionOf({1}, false, classes), "1");
  EXPECT_EQ(CaptionOf({2, -1}, false, classes), "2 -1");
  EXPECT_EQ(CaptionOf({0.5, 0.25}, false, classes), "0.5 0.25");
  EXPECT_EQ(CaptionOf(std::vector<double>(20, 7), false, {}), "7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7");
}

TEST_F(ShownBatchTest, OtherInputsAreNoPictures) {
  WriteBytes(folder_ / "x.npy", Npy("|u1", "(6, 2, 4, 2)", RandomBytes(96, 1)));
  WriteBytes(folder_ / "y.npy", Npy("<i4", "(6,)", std::string(24, '\0')));
  const auto shown = Show("input { name: 'image' dims: [2, 4, 2] } input { name: 'y' type: LABEL }",
                          absl::StrCat(kImage, "array { input: 'y' file: 'y.npy' }"));
  EXPECT_EQ(shown.status().message(),
            "net: expected an input of dims [height, width, 1, 3 or 4] to show as pictures, got "
            "\"image\" [2, 4, 2], \"y\" []");
}

}  // namespace
}  // namespace gyre
