// What people look at before a run: its first batch as a sheet, and what its data hold.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class DataShown : public testing::Test {
 protected:
  DataShown()
      : trainer_(WriteTrainer(folder_ / "", ConvNetText(folder_.data()),
                              {.rest = "batch: 8 steps: 15"})) {}

  ToolResult Check(const std::vector<std::string>& more = {}) const {
    return RunTool("check_data", Joined({"--trainer=" + trainer_}, more));
  }

  TrainingFolder folder_{{}};
  std::string trainer_;
};

TEST_F(DataShown, TheFirstBatchIsASheetWhateverTheRanks) {
  std::string sheet;
  for (const int ranks : {1, 3}) {
    const std::string path = folder_ / absl::StrCat("batch", ranks, ".png");
    const ToolResult shown = folder_.Train("out", {"--show_batch=" + path}, {.ranks = ranks});
    ASSERT_EQ(shown.exit_code, 0) << shown.ToString();
    EXPECT_THAT(shown.out, HasSubstr(absl::StrCat(path, ": ")));
    EXPECT_THAT(shown.out, EndsWith(": 8 of the 8 pictures of the first batch, as input \"image\" "
                                    "[12, 12, 1] gets them\n"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out")) << "it has trained";
    EXPECT_THAT(ReadBytes(path), StartsWith("\x89PNG"));
    if (sheet.empty()) sheet = ReadBytes(path);
    EXPECT_EQ(ReadBytes(path), sheet) << ranks;
  }
}

TEST_F(DataShown, ASheetThatCannotBeWrittenIsToldBeforeTheDataAreRead) {
  std::filesystem::remove(folder_ / "train-images.idx");
  ToolResult shown = folder_.Train("out", {"--show_batch=" + (folder_ / "no/batch.png")});
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.err, HasSubstr("no/batch.png"));
  EXPECT_THAT(shown.err, HasSubstr("No such file or directory"));
  shown = folder_.Train("out", {"--show_batch=" + (folder_ / "batch.png")});
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.err, HasSubstr("train-images.idx"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "batch.png"));
  shown = folder_.Train("out", {"--show_batch=batch.jpg"});
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_THAT(shown.err, StartsWith("error: --show_batch=batch.jpg: expected "));
  std::filesystem::create_symlink("/dev/null", folder_ / "null.png");
  shown = folder_.Train("out", {"--show_batch=" + (folder_ / "null.png")});
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_THAT(shown.err, HasSubstr("null.png: expected the name of a file, got that of a device"));
  shown = folder_.Train("out", {"--show_batch=batch.png", "--plan"});
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_EQ(shown.err, "error: --show_batch: plans nothing; leave out --plan\n");
}

TEST_F(DataShown, DataAreCheckedByExitCode) {
  ToolResult checked = Succeeded(Check());
  EXPECT_THAT(checked.out, StartsWith("samples      training  test\n"
                                      "all                64    17\n"));
  EXPECT_EQ(checked.out, Check({"--threads=5"}).out);
  // Test data of training samples.
  for (const std::string file : {"images.idx", "labels.idx"}) {
    WriteBytes(folder_ / ("test-" + file), ReadBytes(folder_ / ("train-" + file)));
  }
  checked = Check();
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.err, EndsWith("error: 64 samples are in both training and test; correct "
                                    "the data\n"));
  checked = Check({"--json"});
  EXPECT_EQ(checked.exit_code, 1);
  const auto json = nlohmann::json::parse(checked.out);
  EXPECT_EQ(json["sets"]["test"]["samples"], 64);
  EXPECT_EQ(json["duplicates"].size(), 64u);
}

TEST_F(DataShown, ChecksEndWithOneError) {
  EXPECT_EQ(Check({"--threads=-1"}).exit_code, 2);
  std::filesystem::remove(folder_ / "train-images.idx");
  const ToolResult checked = Check();
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_EQ(checked.out, "");
  EXPECT_THAT(checked.err, HasSubstr("train-images.idx"));
}

}  // namespace
}  // namespace gyre
