// Data sets of pictures.  What a file's pixels become is tested in tests/data/pictures.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/data/images/image_fixture.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr char kFolder[] = "train { images { folder: 'set' fit: AS_IS } }";

TEST_F(Images, AFolderGivesClassesAndPixels) {
  const auto b = Picture("set/b/1.png"), a = Picture("set/a/2.png"), c = Picture("set/a/1.png");
  const auto data = *Open(kFolder);
  ASSERT_EQ(data->size(), 3);
  EXPECT_EQ(PixelsOf(*data, 0), c);
  EXPECT_EQ(PixelsOf(*data, 1), a);
  EXPECT_EQ(PixelsOf(*data, 2), b);
  EXPECT_EQ(LabelOf(*data, 1), 0);
  EXPECT_EQ(LabelOf(*data, 2), 1);
  EXPECT_EQ(data->fit(), (Fit{{"classes.txt", "a\nb\n"}}));
  EXPECT_FALSE(data->arrays()[0].digest.empty());
  EXPECT_FALSE(ReadSample(*data, 3, 0).ok());
}

// The classes are those trained on, whatever of them are tested.
TEST_F(Images, TestPicturesAreNumberedByTheFit) {
  Picture("set/a/1.png");
  Picture("set/b/1.png");
  Picture("test/b/1.png");
  const std::string both = absl::StrCat(kFolder, " test { images { folder: 'test' } }");
  EXPECT_EQ(LabelOf(**Open(both, false), 0), 1);
  const Fit fit{{"classes.txt", "0\na\nb\n"}};
  EXPECT_EQ(LabelOf(**Open(both, false, fit), 0), 2);
  Picture("test/z/1.png");
  EXPECT_EQ(Error(both, false), "@test: has class \"z\", but those trained on are \"a\", \"b\"");
}

TEST_F(Images, AListKeepsItsOrderAndItsNumbers) {
  const auto a = Picture("a.png"), b = Picture("b.png");
  Write("list", "b.png\t7\na.png\t0\n");
  const auto data = *Open("train { images { list: 'list' fit: AS_IS } }");
  EXPECT_EQ(PixelsOf(*data, 0), b);
  EXPECT_EQ(PixelsOf(*data, 1), a);
  EXPECT_EQ(LabelOf(*data, 0), 7);
  EXPECT_EQ(data->fit(), Fit{});
  Write("list", "b.png\tx\na.png\t0\n");
  const auto named = *Open("train { images { list: 'list' fit: AS_IS } }");
  EXPECT_EQ(named->fit(), (Fit{{"classes.txt", "0\nx\n"}}));
  EXPECT_EQ(LabelOf(*named, 0), 1);
}

TEST_F(Images, ALabelOfMinusOneIsNoClass) {
  for (const std::string name : {"a", "b", "c"}) Picture(name + ".png");
  for (const bool named : {false, true}) {
    Write("list", named ? "b.png\t-1\na.png\tx\nc.png\ty\n" : "b.png\t-1\na.png\t0\nc.png\t1\n");
    const auto data = *Open("train { images { list: 'list' fit: AS_IS } }");
    EXPECT_EQ(data->fit(), named ? (Fit{{"classes.txt", "x\ny\n"}}) : Fit{});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(LabelOf(*data, i), i - 1);
  }
}

TEST_F(Images, LabelsAreWhatTheNetWants) {
  Picture("a.png");
  Write("list", "a.png\t1.5\t-2\n");
  inputs_[1] = {.name = "label", .dims = {2}};
  const auto reals = *Open("train { images { list: 'list' fit: AS_IS } }");
  const float* values = ReadSample(*reals, 0, 1)->as<float>();
  EXPECT_THAT(std::vector<float>(values, values + 2), ElementsAre(1.5F, -2));

  inputs_[1].label = true;
  EXPECT_EQ(Error("train { images { list: 'list' } }"),
            "@a.png: expected integers of at most 2^24, because the net's label is of type LABEL, "
            "got 1.5");

  const auto mask = Picture("mask.png", 4, 6, 1);
  Write("list", "a.png\tmask.png\n");
  inputs_[1] = {.name = "label", .dims = {4, 6}, .label = true};
  const auto masks = *Open("train { images { list: 'list' fit: AS_IS } }");
  const auto* got = ReadSample(*masks, 0, 1)->as<uint8_t>();
  EXPECT_THAT(mask, ElementsAreArray(got, 24));
}

TEST_F(Images, ALetterboxHasABorder) {
  Write("set/a/1.png", *PngOf({2, 6, 3, std::vector<uint8_t>(36, 200).data()}));
  Picture("set/b/1.png");
  const auto data =
      *Open("train { images { folder: 'set' fit: LETTERBOX background: '#0102ff' } }");
  const std::vector<uint8_t> pixels = PixelsOf(*data, 0);
  for (size_t y = 0; y < 4; ++y) {
    const bool inside = y == 1 || y == 2;
    for (size_t x = 0; x < 6; ++x) {
      EXPECT_EQ(pixels[(y * 6 + x) * 3], inside ? 200 : 1);
      EXPECT_EQ(pixels[(y * 6 + x) * 3 + 2], inside ? 200 : 255);
    }
  }
}

// Whatever the workers: data_memory_test.
TEST_F(Images, AnotherPositionIsAnotherWindow) {
  Picture("set/a/1.png", 23, 21);
  Picture("set/b/1.png");
  const auto data = *Open("train { images { folder: 'set' } } augmentation { random_crop {} }");
  SampleMemory memory;
  const auto read = [&](int64_t position) {
    const Tensor sample = *data->Read(0, 0, memory, SampleDraw{.seed = 1, .position = position});
    return std::vector<uint8_t>(sample.as<uint8_t>(), sample.as<uint8_t>() + sample.elements());
  };
  EXPECT_EQ(read(0), read(0));
  EXPECT_NE(read(0), read(1));
}

TEST_F(Images, NamesTheFileThatCannotBeRead) {
  Picture("set/a/1.png");
  Picture("set/b/1.png", 4, 7);
  const auto data = *Open(kFolder);
  EXPECT_THAT(Error(ReadSample(*data, 1, 0).status()), HasSubstr("@set/b/1.png: "));
  Write("set/b/1.png", "text");
  EXPECT_THAT(Error(ReadSample(*data, 1, 0).status()), HasSubstr("@set/b/1.png: "));
  Write("set/b/1.png", "");
  EXPECT_THAT(Error(ReadSample(*data, 1, 0).status()), HasSubstr("@set/b/1.png: "));
  std::filesystem::remove(folder_ / "set/b/1.png");
  EXPECT_EQ(ReadSample(*data, 1, 0).status().code(), absl::StatusCode::kNotFound);
  Picture("set/b/1.png");
  const auto small = *Open("train { images { folder: 'set' most_pixels: 23 } }");
  EXPECT_THAT(Error(ReadSample(*small, 0, 0).status()), HasSubstr("23"));
}

TEST_F(Images, RefusesWhatTheNetDoesNotTake) {
  Picture("set/a/1.png");
  EXPECT_THAT(Error(kFolder), HasSubstr("@set/a/1.png and all others are of class \"a\""));
  Picture("set/b/1.png");
  EXPECT_THAT(Error("train { images { folder: 'set' background: 'pink' } }"),
              HasSubstr("expected a colour, \"#rrggbb\" or one of black"));
  inputs_[1] = {.name = "label", .dims = {2}, .label = true};
  EXPECT_THAT(Error(kFolder), HasSubstr("other labels are in a `list`"));
  inputs_[1].dims = {3, 6};
  EXPECT_THAT(Error(kFolder), HasSubstr("a mask LABEL [4, 6], but \"label\" has dims [3, 6]"));
  inputs_[1].name = "class";
  EXPECT_EQ(Error(kFolder), "");  // it takes pictures alone
  inputs_[0].name = "picture";
  EXPECT_EQ(Error(kFolder),
            "images feed the net's input \"image\" (data.image_input), but its "
            "inputs are \"picture\", \"class\"");
  inputs_[0].name = "image";
  inputs_[0].dims = {4, 6, 2};
  EXPECT_THAT(Error(kFolder), HasSubstr("1, 3 or 4 channels, but \"image\" has dims [4, 6, 2]"));
}

}  // namespace
}  // namespace gyre
