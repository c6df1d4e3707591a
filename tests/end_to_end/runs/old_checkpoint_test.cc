// Checkpoints that earlier versions of Gyre have written, in checkpoints/VERSION.NET: each resumes,
// and goes on as the run that wrote it did.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OldCheckpoint : public testing::TestWithParam<std::string> {};

// straight.jsonl has the metrics of 20 steps without a break; run/ has a checkpoint of step 10.
TEST_P(OldCheckpoint, ResumesAndGoesOn) {
  const std::vector<double> straight = MetricsIn(
      fs::path("tests/end_to_end/runs/checkpoints") / GetParam() / "straight.jsonl", "loss");
  ASSERT_EQ(straight.size(), 20);
  for (const int ranks : {1, 2}) {
    const TempFolder folder;
    fs::copy(fs::path("tests/end_to_end/runs/checkpoints") / GetParam(), folder.path(),
             fs::copy_options::recursive);
    const std::string out = folder / "run";
    const ToolResult result = Succeeded(
        RunTool("train", {"--trainer=" + folder / "trainer.textproto", "--out=" + out,
                          "--resume=latest", "--threads=1", absl::StrCat("--ranks=", ranks)}));
    EXPECT_THAT(result.out, HasSubstr("resumed at step 10"));
    const std::vector<double> losses = MetricsIn(out + "/metrics.jsonl", "loss");
    ASSERT_EQ(losses.size(), straight.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      // F32 on another CPU and another number of ranks: ten steps enlarge the rounding of sums.
      EXPECT_NEAR(losses[i], straight[i], 1e-4 * straight[i]) << ranks << " ranks, step " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, OldCheckpoint, testing::Values("0.0.conv", "0.0.carried"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace gyre
