// What train --plan prints, of a small net.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/end_to_end/bad_input.h"

namespace gyre {
namespace {

// For a script, with the same bytes as for a person; a switch that nothing reads is a mistake.
TEST(Plan, AsJson) {
  const GoodFolder folder;
  const ToolResult result = folder.Run("train", {"--plan", "--json", "--ranks=2"});
  const auto plan = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(plan.is_object()) << result.ToString();
  EXPECT_EQ(plan["ranks"].get<int>(), 2);
  EXPECT_EQ(plan["communication"]["how"].get<std::string>(), "auto: shared allreduce");
  int64_t parameters = 0;
  for (const auto& layer : plan["layers"]) parameters += layer["parameters"].get<int64_t>();
  EXPECT_GT(parameters, 0);
  EXPECT_EQ(plan["parameters"].get<int64_t>(), parameters);
  EXPECT_EQ(plan["bytes"]["device"].get<int64_t>(), plan["bytes"]["nets"].get<int64_t>() +
                                                        plan["bytes"]["gradients"].get<int64_t>() +
                                                        plan["bytes"]["exchange"].get<int64_t>());
  EXPECT_TRUE(plan["paged_seconds"].is_null());
  EXPECT_EQ(folder.Run("train", {"--json"}).err, "error: --json needs --plan\n");
  EXPECT_EQ(folder.Run("train", {"--verbose"}).err, "error: --verbose needs --plan\n");
}

// Shapes are the net's.
TEST(Plan, WithoutData) {
  const GoodFolder folder;
  const ToolResult with = folder.Run("train", {"--plan", "--json"});
  std::filesystem::remove(folder / "train-images.idx");
  const ToolResult without = folder.Run("train", {"--plan", "--json"});
  const auto a = nlohmann::json::parse(with.out, nullptr, /*allow_exceptions=*/false);
  const auto b = nlohmann::json::parse(without.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(a.is_object() && b.is_object()) << with.ToString() << without.ToString();
  for (const char* same : {"layers", "bytes", "communication", "batch"}) {
    EXPECT_EQ(a[same], b[same]) << same;
  }
  EXPECT_TRUE(b["samples"].is_null());
  EXPECT_TRUE(absl::StrContains(b["notes"].dump(), "planned without data, by the net's inputs: "))
      << b["notes"];
  const ToolResult trains = folder.Run("train", {"--out=@/out"});
  EXPECT_EQ(trains.exit_code, 1);
  EXPECT_TRUE(trains.err.ends_with(
      absl::StrCat("cannot open ", folder / "train-images.idx", ": No such file or directory\n")))
      << trains.err;
}

// What a run would find wrong before its first step, in the same words.
TEST(Plan, FailsAsARunWould) {
  const GoodFolder folder;
  const std::string out = "--out=@/out", weights = "--weights=@/run";
  const std::string wide = "--set=net.layer.fc.dense.outputs=7";
  const std::vector<std::string> arguments[] = {
      {out, "--weights=@/none"},
      {out, "--weights=@/trainer.textproto"},
      {out, weights, wide},
      {out, weights, "--weights_map=fc"},
      {out, weights, "--weights_map=fcx=fc"},
      {out, "--weights_map=fc="},
      {out, weights, "--resume=latest"},
      {out, "--resume=latest"},
      {out, "--resume=@/run"},
      {"--out=@/run"},
      {"--out=@/run", "--resume=latest", wide},
      {"--out=@/run", "--resume=latest", "--seed=99"},
      {"--out=@/run", "--resume=latest", "--steps=3"},
      {"--out=@/run", "--resume=@/run/checkpoints/step_00000002"},
      {out, "--device=sim", "--device_memory=4M", "--host_memory=400K",
       "--set=net.layer.fc.dense.outputs=3000", "--page_folder=@/none"},
  };
  for (const auto& of_case : arguments) {
    std::vector<std::string> planned = of_case;
    planned.push_back("--plan");
    const ToolResult trains = folder.Run("train", of_case), plans = folder.Run("train", planned);
    EXPECT_NE(plans.exit_code, 0) << plans.ToString();
    EXPECT_EQ(plans.exit_code, trains.exit_code) << trains.ToString();
    EXPECT_EQ(plans.err, trains.err);
    EXPECT_EQ(plans.out, "");
  }
}

TEST(Plan, SaysWhereItStarts) {
  const GoodFolder folder;
  EXPECT_TRUE(
      absl::StrContains(folder.Run("train", {"--plan", "--out=@/run", "--resume=latest"}).out,
                        "goes on from step 4 of"));
  EXPECT_TRUE(
      absl::StrContains(folder.Run("train", {"--plan", "--weights=@/run"}).out, "starts from "));
}

TEST(Plan, EndsWithWhatIsLikelyAMistake) {
  const GoodFolder folder;
  const ToolResult result = folder.Run("train", {"--plan", "--set=learning_rate.base=20"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_TRUE(result.out.ends_with(
      "\nwarning: --set learning_rate.base=20: learning_rate.base: with sgd rates are\n"
      "  usually 1e-07 to 10, got 20\n"))
      << result.out;
}

}  // namespace
}  // namespace gyre
