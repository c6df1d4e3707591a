#include "engine/data/sets/side_by_side.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "engine/data/batches/split_dataset.h"
#include "tests/data/array_bytes.h"
#include "tests/data/images/image_fixture.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kThree[] =
    "train { images { list: 'left' fit: AS_IS }"
    "  beside { images { list: 'right' input: 'right' fit: AS_IS } }"
    "  beside { arrays { array { input: 'age' file: 'age.npy' } } } }";

class SideBySideTest : public Images {
 protected:
  SideBySideTest() {
    inputs_ = {{.name = "image", .dims = {4, 6, 3}},
               {.name = "right", .dims = {2, 3, 1}},
               {.name = "age"},
               {.name = "label", .label = true}};
    std::string left, right;
    for (int i = 0; i < 5; ++i) {
      left_.push_back(Picture(absl::StrCat("l", i, ".png")));
      right_.push_back(Picture(absl::StrCat("r", i, ".png"), 2, 3, 1));
      absl::StrAppend(&left, "l", i, ".png\t", i % 2 == 0 ? "dog" : "cat", "\n");
      absl::StrAppend(&right, "r", i, ".png\n");
    }
    Write("left", left);
    Write("right", right);
    Write("age.npy", Npy("|u1", "(5,)", "\1\2\3\4\5"));
  }

  std::vector<std::vector<uint8_t>> left_, right_;
};

TEST_F(SideBySideTest, EachSampleHasThePartsOfAll) {
  const auto data = *Open(kThree);
  ASSERT_EQ(data->size(), 5);
  std::vector<std::string> inputs;
  for (const DataArray& array : data->arrays()) inputs.push_back(array.input);
  EXPECT_THAT(inputs, ElementsAre("image", "label", "right", "age"));
  EXPECT_EQ(data->fit(), (Fit{{"classes.txt", "cat\ndog\n"}}));
  // A sample lives until its own array is read again.
  SampleMemory memory;
  for (int64_t i = 4; i >= 0; --i) {
    std::vector<Tensor> parts;
    for (size_t array = 0; array < 4; ++array) {
      parts.push_back(*data->Read(i, array, memory, std::nullopt));
    }
    const auto bytes = [&](size_t array) {
      const auto* first = parts[array].as<uint8_t>();
      return std::vector<uint8_t>(first, first + parts[array].elements());
    };
    EXPECT_EQ(bytes(0), left_[static_cast<size_t>(i)]);
    EXPECT_EQ(*parts[1].as<int32_t>(), i % 2 == 0 ? 1 : 0);
    EXPECT_EQ(bytes(2), right_[static_cast<size_t>(i)]);
    EXPECT_EQ(bytes(3)[0], i + 1);
  }
  EXPECT_FALSE(ReadSample(*data, 5, 2).ok());

  HoldOutConfig half;
  half.set_test(0.5);
  const auto split = *Split(*Open(kThree), half, "label");
  ASSERT_EQ(split.train->size() + split.test->size(), 5);
  for (const Dataset* part : {split.train.get(), split.test.get()}) {
    for (int64_t i = 0; i < part->size(); ++i) {
      const auto age = static_cast<size_t>(PixelsOf(*part, i, 3)[0]);
      EXPECT_EQ(PixelsOf(*part, i, 0), left_[age - 1]);
      EXPECT_EQ(PixelsOf(*part, i, 2), right_[age - 1]);
    }
  }
}

TEST_F(SideBySideTest, TestSourcesAreThoseOfTheirPlace) {
  Write("left2", "l3.png\tcat\n");
  Write("right2", "r4.png\n");
  Write("age2.npy", Npy("|u1", "(1,)", "\7"));
  const auto data = *Open(absl::StrCat(kThree,
                                       "test { images { list: 'left2' }"
                                       "  beside { images { list: 'right2' } }"
                                       "  beside { arrays { array { input: 'age' file: 'age2.npy' "
                                       "} } } }"),
                          /*train=*/false);
  EXPECT_EQ(PixelsOf(*data, 0, 0), left_[3]);
  EXPECT_EQ(LabelOf(*data, 0), 0);
  EXPECT_EQ(PixelsOf(*data, 0, 2), right_[4]);
  EXPECT_EQ(PixelsOf(*data, 0, 3)[0], 7);
}

// Pictures of one size are cut alike at one position.
TEST_F(SideBySideTest, DrawsAreThoseOfThePosition) {
  inputs_[1].dims = {4, 6, 3};
  Write("same", "l0.png\nl1.png\nl2.png\nl3.png\nl4.png\n");
  const auto data = *Open(
      "train { images { list: 'left' } beside { images { list: 'same' input: 'right' } } } "
      "augmentation { random_crop {} input: ['image', 'right'] }");
  SampleMemory memory;
  for (int64_t position = 0; position < 20; ++position) {
    const SampleDraw draw{.seed = 3, .position = position};
    const Tensor left = *data->Read(position % 5, 0, memory, draw),
                 right = *data->Read(position % 5, 2, memory, draw);
    EXPECT_TRUE(std::equal(left.as<uint8_t>(), left.as<uint8_t>() + 72, right.as<uint8_t>()));
  }
}

// Each source of pictures has classes of its own, beside texts of others.
TEST_F(SideBySideTest, FitsAreMerged) {
  Write("of", "l0.png\tx\nl1.png\ty\nl2.png\tx\nl3.png\tx\nl4.png\tx\n");
  Write("t.csv", "a\n1\n2\n3\n4\n5\n");
  inputs_.push_back({.name = "columns", .dims = {1}});
  inputs_.push_back({.name = "kind", .label = true});
  const std::string text =
      "train { images { list: 'left' }"
      "  beside { images { list: 'of' input: 'right' label: 'kind' } }"
      "  beside { table { file: 't.csv' } } }";
  const auto data = *Open(text);
  const Fit fit = data->fit();
  EXPECT_EQ(fit.size(), 3U);
  EXPECT_EQ(fit.at("classes.txt"), "cat\ndog\n");
  EXPECT_EQ(fit.at("classes_kind.txt"), "x\ny\n");
  EXPECT_TRUE(fit.contains("table.txt"));
  EXPECT_EQ((*Open(text, true, fit))->fit(), fit);
  // Labels that are numbers make no text, even where there are others.
  Write("of", "l0.png\t7\nl1.png\t0\nl2.png\t0\nl3.png\t0\nl4.png\t0\n");
  Fit numbers = (*Open(text))->fit();
  EXPECT_EQ(numbers.size(), 2U);
  const auto again = *Open(text, true, numbers);
  EXPECT_EQ(again->fit(), numbers);
  EXPECT_EQ(LabelOf(*again, 0), 1);
  EXPECT_EQ(*ReadSample(*again, 0, 3)->as<int32_t>(), 7);
  Write("of", "l0.png\tx\nl1.png\t0\nl2.png\t0\nl3.png\t0\nl4.png\t0\n");
  EXPECT_THAT(Error(text, true, numbers), HasSubstr("but those trained on are numbers"));
}

TEST_F(SideBySideTest, RefusesWhatDoesNotFit) {
  Write("age.npy", Npy("|u1", "(4,)", "\1\2\3\4"));
  EXPECT_EQ(Error(kThree), "@left holds 5 samples, but @age.npy holds 4");
  Write("age.npy", Npy("|u1", "(5,)", "\1\2\3\4\5"));
  EXPECT_EQ(Error("train { images { list: 'left' } beside { images { list: 'right' } } }"),
            "@left and @right both feed the net's input \"image\"");
  Write("right", "r0.png\t1\n");
  EXPECT_EQ(Error(kThree), "@left holds 5 samples, but @right holds 1");
  EXPECT_THAT(Error("train { images { list: 'left' } beside { images { list: 'right' input: 'up' } "
                    "} }"),
              HasSubstr("the net's input \"up\" (images.input), but its inputs are \"image\""));
  Write("a.txt", "ab");
  Write("one", "l0.png\tdog\n");
  EXPECT_EQ(
      Error("train { text { file: 'a.txt' length: 2 } beside { text { file: 'a.txt' length: 2 "
            "} } }"),
      "@a.txt and @a.txt both feed the net's input \"text\"");
  Write("c.csv", "i,s\nu,1\nv,1\n");
  Write("d.csv", "j,s\nu,1\nv,1\n");
  inputs_ = {{.name = "i", .label = true}, {.name = "j", .label = true}};
  EXPECT_EQ(Error("train { table { file: 'c.csv' index: 'i' ignore: 's' } beside { table { file: "
                  "'d.csv' index: 'j' ignore: 's' } } }"),
            "@d.csv and a source before it both make table.txt of their samples; only one may");
}

}  // namespace
}  // namespace gyre
