#include "engine/training/feed/bad_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre {
namespace {

TEST(BadSamples, CountAnEpochAndNameTheFirst) {
  BadSamples bad(/*most=*/2, /*samples=*/9);
  EXPECT_THAT(bad.New({"a", "b", "a"}), testing::ElementsAre("a", "b"));
  EXPECT_THAT(bad.New({"b", "c", "d"}), testing::ElementsAre("c", "d"));
  bad.Count(0, 2);
  bad.Count(1, 1);
  EXPECT_EQ(bad.count(), 1);
  bad.Count(1, 1);
  EXPECT_TRUE(bad.status().ok());
  EXPECT_EQ(bad.CountOf(1), 2);
  EXPECT_EQ(bad.CountOf(2), 0);
  bad.Count(1, 2);
  EXPECT_EQ(bad.status(),
            absl::FailedPreconditionError(
                "4 samples could not be read, more than data.max_bad_samples, which is 2: a; b; c; "
                "correct or remove the files, all of which tools/check_data names, or raise it"));
  EXPECT_EQ(bad.count(), 2);  // without those that end the run
  BadSamples of_others(0, 1);
  of_others.Count(0, 1);
  EXPECT_EQ(of_others.status().message(),
            "1 sample could not be read, more than data.max_bad_samples, which is 0: other ranks "
            "name them; correct or remove the files, all of which tools/check_data names, or raise "
            "it");
}

TEST(BadSamples, GoOnFromACount) {
  BadSamples bad(/*most=*/2, /*samples=*/9, /*epoch=*/3, /*count=*/2);
  bad.Count(3, 0);
  EXPECT_TRUE(bad.status().ok());
  bad.Count(3, 1);
  EXPECT_FALSE(bad.status().ok());
  BadSamples lowered(/*most=*/1, /*samples=*/9, /*epoch=*/3, /*count=*/2);
  lowered.Count(3, 0);
  lowered.Count(4, 1);
  EXPECT_TRUE(lowered.status().ok());
  EXPECT_EQ(lowered.CountOf(4), 1);
}

TEST(BadSamples, OneMustBeSound) {
  BadSamples bad(/*most=*/100, /*samples=*/3);
  EXPECT_THAT(bad.New({"a", "b"}), testing::SizeIs(2));
  bad.Count(0, 2);
  bad.Count(1, 2);
  EXPECT_TRUE(bad.status().ok());
  bad.Count(1, 1);
  EXPECT_EQ(bad.status(), absl::FailedPreconditionError(
                              "no sample of 3 could be read: a; b; correct the files, all of "
                              "which tools/check_data names"));
  EXPECT_EQ(bad.count(), 2);
}

}  // namespace
}  // namespace gyre
