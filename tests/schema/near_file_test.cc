#include "models/schema/near_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

std::string Advice(const std::string& path) {
  const absl::Status status = WithNearFile(absl::NotFoundError("gone"), path);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  return std::string(status.message());
}

TEST(NearFile, NamesTheNearestOfItsFolder) {
  const TempFolder folder;
  WriteBytes(folder / "net.textproto", "");
  WriteBytes(folder / "train-images.idx", "");
  fs::create_directories(folder / "runs/tour/checkpoints");
  EXPECT_EQ(Advice(folder / "nte.textproto"),
            absl::StrCat("gone; did you mean ", folder / "net.textproto", "?"));
  EXPECT_EQ(Advice(folder / "run/tour/checkpoints"),
            absl::StrCat("gone; did you mean ", folder / "runs/tour/checkpoints", "?"));
  EXPECT_EQ(Advice(folder / "runs/tuor/other"),
            absl::StrCat("gone; did you mean ", folder / "runs/tour", "?"));
  // Another file of the data set.
  EXPECT_EQ(Advice(folder / "train-labels.idx"), "gone");
  EXPECT_EQ(Advice(""), "gone");
  EXPECT_EQ(Advice("/"), "gone");
}

TEST(NearFile, SaysNothingOfAnotherError) {
  const TempFolder folder;
  WriteBytes(folder / "net.textproto", "");
  const absl::Status status = absl::PermissionDeniedError("no");
  EXPECT_EQ(WithNearFile(status, folder / "nte.textproto"), status);
}

TEST(NearFile, LeavesHiddenNamesOut) {
  const TempFolder folder;
  fs::create_directory(folder / ".hidden");
  EXPECT_EQ(Advice(folder / "hidden"), "gone");
  EXPECT_EQ(Advice(folder / ".hiden"),
            absl::StrCat("gone; did you mean ", folder / ".hidden", "?"));
}

}  // namespace
}  // namespace gyre
