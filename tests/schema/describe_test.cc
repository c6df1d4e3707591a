// Which name is offered for a misspelt one, and the wording around it.
#include "models/schema/describe.h"

#include <gtest/gtest.h>

namespace gyre {
namespace {

TEST(DidYouMean, TakesTheNearest) {
  const std::vector<std::string> fields = {"filters", "kernel", "stride", "padding", "name"};
  EXPECT_EQ(DidYouMean("kernal", fields), "kernel");
  EXPECT_EQ(DidYouMean("fliters", fields), "filters");
  EXPECT_EQ(DidYouMean("strides", fields), "stride");
  EXPECT_EQ(DidYouMean("KERNEL", fields), "kernel");
  EXPECT_EQ(DidYouMean("nam", fields), "name");
}

TEST(DidYouMean, OffersNothingThatIsFar) {
  const std::vector<std::string> fields = {"filters", "kernel"};
  EXPECT_EQ(DidYouMean("momentum", fields), "");
  EXPECT_EQ(DidYouMean("", fields), "");
  EXPECT_EQ(DidYouMean("kernel", {}), "");
  // Every letter replaced is no resemblance, however short the word.
  EXPECT_EQ(DidYouMean("x", std::vector<std::string>{"a", "b"}), "");
}

TEST(DidYouMean, AllowsOneEditAndAThirdOfTheLength) {
  const std::vector<std::string> words = {"abcdef"};
  EXPECT_EQ(DidYouMean("abcxyz", words), "abcdef");  // 3 edits, 1 + 6 / 3 allowed
  EXPECT_EQ(DidYouMean("abwxyz", words), "");        // 4
}

TEST(DidYouMean, EachKindOfEditCountsOnce) {
  EXPECT_EQ(DidYouMean("abc", std::vector<std::string>{"xabcy"}), "xabcy");  // insertions
  EXPECT_EQ(DidYouMean("xabcyz", std::vector<std::string>{"abc"}), "abc");   // deletions
  EXPECT_EQ(DidYouMean("xbcdey", std::vector<std::string>{"abcdef"}), "abcdef");
  EXPECT_EQ(DidYouMean("abc", std::vector<std::string>{"xabcyz"}), "");
}

TEST(DidYouMean, ABeginningIsNear) {
  const std::vector<std::string> words = {"batch", "padding"};
  EXPECT_EQ(DidYouMean("batch_size", words), "batch");
  EXPECT_EQ(DidYouMean("pad", words), "padding");
  EXPECT_EQ(DidYouMean("pa", words), "");
}

TEST(DidYouMean, PrefersTheWordItselfToABeginning) {
  EXPECT_EQ(DidYouMean("max", std::vector<std::string>{"MAXIMUM", "MAX"}), "MAX");
}

TEST(DidYouMean, TheFirstOfEquals) {
  EXPECT_EQ(DidYouMean("conv3", std::vector<std::string>{"conv1", "conv2"}), "conv1");
}

TEST(Unknown, SuggestsOrLists) {
  const std::vector<std::string> names = {"image", "label"};
  EXPECT_EQ(Unknown("input", "imgae", names), "unknown input \"imgae\"; did you mean \"image\"?");
  EXPECT_EQ(Unknown("input", "x", names), "unknown input \"x\"; choose from image, label");
  EXPECT_EQ(Unknown("input", "x", {}), "unknown input \"x\"; there is none");
}

TEST(DidYouMean, AllowsFewerEdits) {
  const std::vector<std::string> words = {"train-images"};
  EXPECT_EQ(DidYouMean("train-imgaes", words, 2), "train-images");
  EXPECT_EQ(DidYouMean("train-imgase", words, 2), "");
}

TEST(PointAdvice, IsOfADecimalAlone) {
  EXPECT_EQ(PointAdvice("0,02"), "; a decimal has a point: 0.02");
  EXPECT_EQ(PointAdvice("-1,5e-3"), "; a decimal has a point: -1.5e-3");
  for (const char* other : {"", ",", "0.02", "1,", ",5", "1,2,3", "a,b", "1,5x"}) {
    EXPECT_EQ(PointAdvice(other), "") << other;
  }
}

TEST(Listed, StopsAtTwenty) {
  EXPECT_EQ(Listed({}), "");
  EXPECT_EQ(Listed(std::vector<std::string>(2, "a")), "a, a");
  const std::string twenty = Listed(std::vector<std::string>(20, "a"));
  EXPECT_EQ(twenty.size(), 20u + 19 * 2);
  EXPECT_EQ(Listed(std::vector<std::string>(1000, "a")), twenty + ", ...");
}

}  // namespace
}  // namespace gyre
