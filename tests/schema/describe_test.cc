// Which name is offered for a misspelt one, and the wording around it.
#include "models/schema/describe.h"

#include <gtest/gtest.h>

namespace gyre {
namespace {

TEST(DidYouMean, TakesTheNearest) {
  const std::vector<std::string> fields = {"filters", "kernel", "stride", "padding", "batch"};
  const struct {
    std::string word;
    std::vector<std::string> candidates;
    std::string near;
  } cases[] = {
      {"kernal", fields, "kernel"},
      {"fliters", fields, "filters"},
      {"KERNEL", fields, "kernel"},
      {"momentum", fields, ""},
      {"", fields, ""},
      {"kernel", {}, ""},
      // A beginning is near, unless it is too short.
      {"batch_size", fields, "batch"},
      {"pad", fields, "padding"},
      {"pa", fields, ""},
      {"max", {"MAXIMUM", "MAX"}, "MAX"},
      // One edit and a third of the length: 3 edits of 6 letters, not 4.
      {"abcxyz", {"abcdef"}, "abcdef"},
      {"abwxyz", {"abcdef"}, ""},
      // Insertions, deletions and replacements count one each.
      {"abc", {"xabcy"}, "xabcy"},
      {"xabcyz", {"abc"}, "abc"},
      {"xbcdey", {"abcdef"}, "abcdef"},
      {"abc", {"xabcyz"}, ""},
      // Every letter replaced is no resemblance, however short the word, nor are most of them.
      {"x", {"a", "b"}, ""},
      {"foo", {"top"}, ""},
      {"fo", {"to"}, "to"},
      {"tpo", {"top"}, "top"},
      // The first of equals.
      {"conv3", {"conv1", "conv2"}, "conv1"},
  };
  for (const auto& c : cases) EXPECT_EQ(DidYouMean(c.word, c.candidates), c.near) << c.word;
  const std::vector<std::string> files = {"train-images"};
  EXPECT_EQ(DidYouMean("train-imgaes", files, 2), "train-images");
  EXPECT_EQ(DidYouMean("train-imgase", files, 2), "");
}

TEST(Unknown, SuggestsOrLists) {
  const std::vector<std::string> names = {"image", "label"};
  EXPECT_EQ(Unknown("input", "imgae", names), "unknown input \"imgae\"; did you mean \"image\"?");
  EXPECT_EQ(Unknown("input", "x", names), "unknown input \"x\"; choose from image, label");
  EXPECT_EQ(Unknown("input", "x", {}), "unknown input \"x\"; there is none");
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
