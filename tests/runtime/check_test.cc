#include "engine/runtime/check.h"

#include <gtest/gtest.h>

#include <memory>

namespace gyre {
namespace {

absl::Status Passes(const absl::Status& status) {
  RETURN_IF_ERROR(status);
  return absl::AlreadyExistsError("went on");
}

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

// Two in one function: the macro's hidden names must not clash.  The type is move-only.
absl::StatusOr<int> SumOf(int a, int b) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> first, Make(a));
  std::unique_ptr<int> second;
  ASSIGN_OR_RETURN(second, Make(b));
  return *first + *second;
}

TEST(CheckTest, ReturnIfErrorPassesErrorsUpAndGoesOnOtherwise) {
  EXPECT_EQ(Passes(absl::InternalError("x")), absl::InternalError("x"));
  EXPECT_EQ(Passes(absl::OkStatus()), absl::AlreadyExistsError("went on"));
}

TEST(CheckTest, AssignOrReturnMovesTheValueOrPassesTheErrorUp) {
  EXPECT_EQ(*SumOf(2, 3), 5);
  EXPECT_EQ(SumOf(-1, 3).status(), absl::OutOfRangeError("negative"));
  EXPECT_EQ(SumOf(1, -3).status(), absl::OutOfRangeError("negative"));
}

TEST(CheckTest, AnnotateKeepsTheCodeAndLeavesOkAlone) {
  EXPECT_EQ(Annotate(absl::NotFoundError("no file"), "conv1"),
            absl::NotFoundError("conv1: no file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "conv1").ok());
}

TEST(CheckDeathTest, AFailedCheckSaysWhereAndWhat) {
  GYRE_CHECK(1 + 1 == 2);
  EXPECT_DEATH(GYRE_CHECK(1 + 1 == 3), "check_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace gyre
