// Shots, text and reviews from the files to the trained net: made by the tools, on more ranks,
// interrupted in the middle of an epoch, and tested by what the training samples decided.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;

constexpr char kShotsNet[] = R"(
  name: "shots"
  input { name: "signals" dims: [24, 3] }
  input { name: "temperature" dims: [24, 2] }
  input { name: "length" type: LABEL }
  input { name: "reset" dims: 24 type: LABEL }
  input { name: "target" dims: 24 type: LABEL }
  layer { name: "x" input: ["signals", "temperature"] concat { axis: -1 } }
  layer { name: "lstm" input: ["x", "length", "reset"] lstm { hidden: 5 carry: true } }
  layer { name: "fc" dense { outputs: 2 } }
  layer { name: "loss" input: ["fc", "target"] softmax_cross_entropy { ignore_label: -1 } })";

constexpr char kTextNet[] = R"(
  name: "text"
  input { name: "text" dims: 8 type: LABEL }
  input { name: "next" dims: 8 type: LABEL }
  layer { name: "token" input: "text" embedding { vocabulary: 16 width: 4 } }
  layer { name: "lstm" lstm { hidden: 4 } }
  layer { name: "fc" dense { outputs: 16 } }
  layer { name: "loss" input: ["fc", "next"] softmax_cross_entropy { ignore_label: -1 } })";

constexpr char kReviewsNet[] = R"(
  name: "reviews"
  input { name: "text" dims: 16 type: LABEL }
  input { name: "length" type: LABEL }
  input { name: "label" type: LABEL }
  layer { name: "token" input: "text" embedding { vocabulary: 300 width: 4 } }
  layer { name: "lstm" input: ["token", "length"] lstm { hidden: 4 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 2 } }
  layer { name: "loss" input: ["fc", "label"] softmax_cross_entropy {} })";

class SeriesRun : public testing::Test {
 protected:
  void Write(const std::string& net, const std::string& data) {
    WriteBytes(folder_ / "net", net);
    WriteBytes(folder_ / "trainer",
               absl::StrCat("net: 'net' optimizer { sgd { momentum: 0.9 } } learning_rate { base: "
                            "0.1 } precision: F64 data { ",
                            data, " }"));
  }
  ToolResult Run(const std::string& tool, const std::vector<std::string>& arguments) {
    return RunTool(
        tool, Joined(arguments, {"--threads=1", absl::StrCat("--trainer=", folder_ / "trainer")}));
  }
  ToolResult Train(const std::string& out, const std::vector<std::string>& arguments) {
    return Run("train", Joined(arguments, {absl::StrCat("--out=", folder_ / out)}));
  }
  // The "loss" of each step.
  std::vector<double> Losses(const std::string& out) {
    return MetricsIn(folder_ / absl::StrCat(out, "/metrics.jsonl"), "loss");
  }

  TempFolder folder_;
};

TEST_F(SeriesRun, ShotsGoOnAfterAnInterruptionOnAnyRanks) {
  const std::vector<std::string> few = {"--train=9", "--test=5", "--shot_steps=100", "--points=2"};
  for (const std::string out : {"shots", "again"}) {
    Succeeded(RunTool("make_shots", Joined(few, {absl::StrCat("--out=", folder_ / out)})));
  }
  const std::string shot = "/train/shot_00004.npz";
  EXPECT_EQ(ReadBytes(folder_ / ("shots" + shot)), ReadBytes(folder_ / ("again" + shot)));
  EXPECT_THAT(ReadBytes(folder_ / "shots/SYNTHETIC"), HasSubstr("--seed=1"));
  Write(kShotsNet,
        "train { shots { folder: 'shots/train' signal: ['mode', 'radiation', 'current'] profile: "
        "'temperature' length: 24 warning: 0.03 } } test { shots { folder: 'shots/test' } } order: "
        "CONTIGUOUS");
  const std::vector<std::string> length = {"--batch=4", "--epochs=3"};
  const ToolResult straight = Succeeded(Train("straight", length));
  const std::vector<double> losses = Losses("straight");
  ASSERT_GT(losses.size(), 27u);
  for (const int before : {1, 3}) {
    for (const int after : {1, 2}) {
      const std::string out = absl::StrCat(before, "to", after);
      // In the middle of the second epoch.
      const int stop = static_cast<int>(losses.size()) / 2;
      Train(out, {"--batch=4", absl::StrCat("--steps=", stop), absl::StrCat("--ranks=", before)});
      const ToolResult end = Succeeded(
          Train(out, Joined(length, {"--resume=latest", absl::StrCat("--ranks=", after)})));
      if (before == 1 && after == 1) {
        EXPECT_EQ(DigestOf(end), DigestOf(straight));
      }
      EXPECT_LE(LargestRelativeDifference(Losses(out), losses), 1e-10);
    }
  }
  // What is known of the training shots is in the checkpoint.
  EXPECT_EQ(std::ranges::count(ReadBytes(folder_ / "straight/scales.txt"), '\n'), 4);
  const ToolResult plan = Train("plan", Joined(length, {"--plan"}));
  EXPECT_THAT(plan.out, testing::ContainsRegex("data.train: [0-9]+ samples of padding behind "));
  std::filesystem::remove_all(folder_ / "shots/train");
  const ToolResult tested = Run("evaluate", {absl::StrCat("--weights=", folder_ / "straight"),
                                             "--set=batch=4", "--set=steps=1"});
  EXPECT_EQ(tested.exit_code, 0) << tested.ToString();
  EXPECT_THAT(tested.out, HasSubstr("test loss "));
}

TEST_F(SeriesRun, AnotherVocabularyIsRefused) {
  WriteBytes(folder_ / "train.txt", "abcabcabcabdabcabcabcabcabc");
  WriteBytes(folder_ / "test.txt", "abcabd");
  Write(kTextNet,
        "train { text { file: 'train.txt' length: 8 } } test { text { file: 'test.txt' } }");
  const std::vector<std::string> steps = {"--batch=2", "--steps=4"};
  ASSERT_EQ(Train("run", steps).exit_code, 0);
  const auto evaluate = [&](const std::vector<std::string>& more = {}) {
    return Run("evaluate", Joined({absl::StrCat("--weights=", folder_ / "run"), "--set=batch=2",
                                   "--set=steps=1"},
                                  more));
  };
  const ToolResult tested = Succeeded(evaluate());
  WriteBytes(folder_ / "train.txt", "abcabcabxabdabcabcabcabcabc");
  EXPECT_EQ(evaluate().out, tested.out);
  const std::string differs = "line 6 of vocabulary.txt is its end, but \"x\" here";
  for (const std::string go_on : {"--resume=latest", "--weights="}) {
    const bool resumes = go_on == "--resume=latest";
    const ToolResult refused =
        Train(resumes ? "run" : "other",
              {"--batch=2", "--steps=6", resumes ? go_on : absl::StrCat(go_on, folder_ / "run")});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("was made with another vocabulary.txt: " + differs));
  }
  const std::string own =
      absl::StrCat("--set=data.train.text.vocabulary=", folder_ / "run/vocabulary.txt");
  EXPECT_EQ(Train("run", {"--batch=2", "--steps=6", "--resume=latest", own}).exit_code, 0);
  ASSERT_EQ(Train("third", steps).exit_code, 0);
  const ToolResult refused = evaluate(
      {absl::StrCat("--set=data.train.text.vocabulary=", folder_ / "third/vocabulary.txt")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("is of another run than the weights: " + differs));
}

TEST_F(SeriesRun, ReviewsOfFoldersAndLinesAreTheSame) {
  Succeeded(RunTool("make_reviews",
                    {absl::StrCat("--out=", folder_ / "reviews"), "--train=60", "--test=10"}));
  for (const std::string where : {"folder: 'reviews/train'", "file: 'reviews/train.tsv'"}) {
    Write(kReviewsNet, absl::StrCat("train { reviews { ", where,
                                    " length: 16 } } test { reviews { file: 'reviews/test.tsv' } } "
                                    "order: BUCKETED"));
    for (const int ranks : {1, 3}) {
      const std::string out = absl::StrCat(ranks, where.substr(0, 4));
      Succeeded(Train(out, {"--batch=7", "--epochs=2", absl::StrCat("--ranks=", ranks)}));
      EXPECT_EQ(Losses(out).size(), 18u);
      EXPECT_LE(LargestRelativeDifference(Losses(out), Losses(absl::StrCat(1, where.substr(0, 4)))),
                1e-10);
    }
  }
  // The same words; in another order of samples, so that the losses differ.
  EXPECT_EQ(ReadBytes(folder_ / "1fold/vocabulary.txt"),
            ReadBytes(folder_ / "1file/vocabulary.txt"));
}

}  // namespace
}  // namespace gyre
