// Surveys of data sets: what is told of sound and of faulty samples, whatever the threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/data/sets/memory_dataset.h"
#include "engine/data/survey/survey_text.h"
#include "tests/data/images/image_fixture.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class SurveyOfPictures : public Images {
 protected:
  std::string File(int64_t height, int64_t width, int channels = 3, bool jpeg = false) {
    const std::vector<uint8_t> pixels =
        RandomPixels(static_cast<size_t>(height * width * channels));
    const Pixels of{height, width, channels, pixels.data()};
    return jpeg ? *JpegOf(of, 90) : *PngOf(of);
  }
  std::unique_ptr<Dataset> OpenSet(bool train) const {
    return *Open("train { images { folder: 'train' } } test { images { folder: 'test' } }", train);
  }
};

// Training passes over data that no pixel is made of.
TEST_F(SurveyOfPictures, IsOfWholeFiles) {
  const std::string jpeg = File(20, 30, 3, true);
  Write("train/ant/1.jpg", jpeg);
  Write("train/bee/1.jpg",
        std::string(jpeg).insert(jpeg.size() - 2, "bytes of which libjpeg makes no pixel at all"));
  const auto train = OpenSet(true);
  SampleMemory memory;
  EXPECT_EQ(train->Read(1, 0, memory, {}).status(), absl::OkStatus());
  const std::vector<SurveyedSet> sets = {{"training", train.get()}};
  const Survey survey = SurveyOf(sets, {.label_input = "label"});
  ASSERT_EQ(survey.sets[0].unreadable.size(), 1u);
  EXPECT_THAT(survey.sets[0].unreadable[0].reason,
              AllOf(StartsWith(folder_ / "train/bee/1.jpg: the JPEG is truncated or damaged: "),
                    EndsWith("extraneous bytes before marker 0xd9")));
}

TEST_F(SurveyOfPictures, TellsWhatIsThereAndWhatIsFaulty) {
  const std::string a = File(5, 7);
  Write("train/ant/1.png", a);
  Write("train/ant/2.png", File(9, 8, 1));
  Write("train/ant/3.jpg", File(40, 30, 3, true).substr(0, 700));
  Write("train/bee/1.png", a);
  Write("train/bee/2.png", "");
  const std::string b = File(20, 10, 3, true);
  Write("train/bee/3.jpg", b);
  Write("train/bee/4.png", File(6, 6, 4));
  Write("test/bee/x.jpg", b);
  Write("test/bee/y.png", File(6, 7));
  const auto train = OpenSet(true), test = OpenSet(false);
  const std::vector<SurveyedSet> sets = {{"training", train.get()}, {"test", test.get()}};
  for (const int threads : {1, 3, 20}) {
    int64_t last = -1;
    const Survey survey = SurveyOf(
        sets,
        {.label_input = "label", .threads = threads, .progress = [&](int64_t done, int64_t all) {
           EXPECT_GE(done, last);
           last = done;
           EXPECT_EQ(all, 9);
         }});
    EXPECT_EQ(last, 9);
    EXPECT_FALSE(survey.sound());
    EXPECT_EQ(FaultsOf(survey, sets),
              "2 samples cannot be read, and 1 sample is in both training and test");
    const std::string text = Shown(SurveyText(survey, sets, ClassNamesOf(train->fit())));
    EXPECT_EQ(text,
              "samples      training  test\n"
              "all                 7     2\n"
              "unreadable          2     0\n"
              "there twice         1     0\n"
              "\n"
              "class  training  test\n"
              "ant           2     0\n"
              "bee           3     2\n"
              "\n"
              "pictures           training  test\n"
              "JPEG colour               1     1\n"
              "PNG colour                2     1\n"
              "PNG colour, alpha         1     0\n"
              "PNG grey                  1     0\n"
              "\n"
              "width x height  training     test\n"
              "least              7 x 5    7 x 6\n"
              "median             6 x 6  10 x 20\n"
              "largest          10 x 20  10 x 20\n"
              "\n"
              "unreadable, of training:\n"
              "  @train/ant/3.jpg: expected a JPEG that ends with bytes ff d9, got one that ends "
              "without at byte 700: it is truncated\n"
              "  @train/bee/2.png: expected a picture, got an empty file\n"
              "\n"
              "twice in training:\n"
              "  @train/bee/1.png  is  @train/ant/1.png  with another label\n"
              "\n"
              "in both training and test:\n"
              "  @test/bee/x.jpg  is  @train/bee/3.jpg\n");
    const auto json = nlohmann::json::parse(SurveyJson(survey, sets, {"ant"}));
    EXPECT_EQ(json["sets"]["training"]["classes"], nlohmann::json({{"ant", 2}, {"1", 3}}));
    EXPECT_EQ(json["sets"]["test"]["sizes"]["least"], nlohmann::json({6, 7}));
    EXPECT_EQ(json["sets"]["training"]["unreadable"][1]["sample"], 4);
    ASSERT_EQ(json["duplicates"].size(), 2u);
    EXPECT_EQ(json["duplicates"][0]["other_label"], true);
    EXPECT_EQ(json["duplicates"][1]["again"]["name"], folder_ / "test/bee/x.jpg");
    EXPECT_EQ(json["sound"], false);
  }
}

// Of arrays, all but the label are the content, and a value that is not finite is a fault.
TEST(SurveyOfArrays, ComparesValues) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {1, 2, 3, 4, 1, 2, 5, kNan, 1, 2};
  MemoryDataset set;
  HostArray reals = NewArray<float>(5, {2}), labels = NewArray<float>(5, {3});
  std::ranges::copy(values, ElementsOf<float>(reals));
  for (const int i : {0, 3, 8, 9, 12}) ElementsOf<float>(labels)[i] = 1;  // classes 0 0 2 0 0
  ASSERT_TRUE(set.Add("x", "x.npy", std::move(reals)).ok());
  ASSERT_TRUE(set.Add("label", "y.npy", std::move(labels)).ok());
  const std::vector<SurveyedSet> sets = {{"training", &set}};
  const Survey survey = SurveyOf(sets, {.label_input = "label"});
  ASSERT_EQ(survey.duplicates.size(), 2u);
  EXPECT_EQ(survey.duplicates[0].first.index, 0);
  EXPECT_EQ(survey.duplicates[0].again.index, 2);
  EXPECT_TRUE(survey.duplicates[0].other_label);
  EXPECT_EQ(survey.duplicates[1].again.index, 4);
  EXPECT_FALSE(survey.duplicates[1].other_label);
  EXPECT_THAT(survey.sets[0].classes, UnorderedElementsAre(Pair(0, 3), Pair(2, 1)));
  EXPECT_EQ(survey.sets[0].reals.at("x").least, 1);
  EXPECT_EQ(survey.sets[0].reals.at("x").most, 4);
  ASSERT_EQ(survey.sets[0].unreadable.size(), 1u);
  EXPECT_EQ(survey.sets[0].unreadable[0].reason, "x.npy: sample 3: input \"x\" holds nan");
  EXPECT_EQ(FaultsOf(survey, sets), "1 sample cannot be read");
  EXPECT_THAT(SurveyText(survey, sets, {"a", "b"}),
              HasSubstr("class  training\na             3\nb             0\n2             1\n"));
}

// Duplicates within a set are told, but do no harm.  Numbers are no classes.
TEST(SurveyOfArrays, TellsTwentyOfMany) {
  MemoryDataset set;
  ASSERT_TRUE(set.Add("x", "x.npy", NewArray<uint8_t>(30, {2})).ok());
  ASSERT_TRUE(set.Add("label", "y.npy", NewArray<float>(30, {3})).ok());
  const std::vector<SurveyedSet> sets = {{"training", &set}};
  const Survey survey = SurveyOf(sets, {.label_input = "label", .threads = 2});
  EXPECT_TRUE(survey.sound());
  EXPECT_EQ(FaultsOf(survey, sets), "");
  EXPECT_TRUE(survey.sets[0].classes.empty());
  const std::string text = SurveyText(survey, sets, {});
  EXPECT_THAT(text, HasSubstr("x.npy: sample 20  is  x.npy: sample 0\n"
                              "  ... and 9 more (--json lists all)\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("sample 21")));
  EXPECT_EQ(nlohmann::json::parse(SurveyJson(survey, sets, {}))["duplicates"].size(), 29u);
}

TEST(SurveyOfArrays, AddsUpClassesBeyondTwenty) {
  MemoryDataset set;
  HostArray labels = NewArray<int32_t>(50, {});
  for (int i = 0; i < 50; ++i) ElementsOf<int32_t>(labels)[i] = i % 25;
  ASSERT_TRUE(set.Add("label", "y.npy", std::move(labels)).ok());
  const std::vector<SurveyedSet> sets = {{"test", &set}};
  const std::string text = SurveyText(SurveyOf(sets, {.label_input = "label"}), sets, {});
  EXPECT_THAT(text, HasSubstr("\n19             2\n(5 others)    10\n"));
}

}  // namespace
}  // namespace gyre
