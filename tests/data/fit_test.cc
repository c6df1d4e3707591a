#include "engine/data/sets/fit.h"

#include <gtest/gtest.h>

namespace gyre {
namespace {

TEST(Fit, TheFirstDifferenceIsTold) {
  const Fit two = {{"a.txt", "1\n2\n"}, {"b.txt", "x\n"}};
  EXPECT_EQ(DifferenceOf({}, {}), "");
  EXPECT_EQ(DifferenceOf(two, two), "");
  EXPECT_EQ(DifferenceOf({}, two), "");
  EXPECT_EQ(DifferenceOf({{"b.txt", "x\n"}}, two), "");
  EXPECT_EQ(DifferenceOf(two, {}), "a.txt is expected, but it is none");
  EXPECT_EQ(DifferenceOf(two, {{"a.txt", "1\n2\n"}}), "b.txt is expected, but it is none");
  EXPECT_EQ(DifferenceOf(two, {{"a.txt", "1\n2\n"}, {"c.txt", ""}}),
            "b.txt is expected, but it is c.txt");
  EXPECT_EQ(DifferenceOf(two, {{"a.txt", "1\n3\n"}, {"b.txt", "y\n"}}),
            "line 2 of a.txt is \"2\", but \"3\" here");
  EXPECT_EQ(DifferenceOf(two, {{"a.txt", "1\n2\n"}, {"b.txt", ""}}),
            "line 1 of b.txt is \"x\", but its end here");
}

}  // namespace
}  // namespace gyre
