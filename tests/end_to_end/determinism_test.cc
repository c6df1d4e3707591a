// Theorem: the same command twice makes the same bits.

#include <gtest/gtest.h>

#include "tests/data/temp_folder.h"
#include "tests/end_to_end/run_tool.h"

namespace gyre {
namespace {

TEST(Determinism, Smoke) {
  TempFolder folder;
  const SyntheticData train{.samples = 50}, test{.samples = 17, .seed = 2};
  WriteIdx(folder.path(), "train", train);
  WriteIdx(folder.path(), "test", test);
  const std::string trainer = WriteTrainer(folder.path(), ConvNetText(train), {});
  for (int ranks : {1, 2}) {
    const ToolResult result = RunTool(
        "train", {"--trainer=" + trainer, "--out=" + folder / ("out" + std::to_string(ranks))},
        {.ranks = ranks});
    std::printf("%s\n", result.ToString().c_str());
    EXPECT_EQ(result.exit_code, 0);
  }
}

}  // namespace
}  // namespace gyre
