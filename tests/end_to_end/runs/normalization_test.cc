// Normalization by the training samples: the same on any ranks, and the run's own ever after.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/data/array_bytes.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHeader = 20, kChannels = 3;  // bytes of an IDX file of images
const SyntheticData kData{.samples = 50, .channels = kChannels};

class NormalizedRun : public testing::Test {
 protected:
  NormalizedRun() { Say("auto: true"); }

  void Say(const std::string& normalization) {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.rest = "batch: 8 steps: 12",
                  .data = absl::StrCat("normalization { ", normalization, " }")});
  }
  std::string Fit(const std::string& out) {
    return ReadBytes(folder_ / absl::StrCat(out, "/normalization.txt"));
  }
  // Column `column` of a normalization.txt.
  static std::vector<std::string> Column(const std::string& fit, size_t column) {
    std::vector<std::string> values;
    for (const auto line : absl::StrSplit(fit, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(line, '\t');
      EXPECT_EQ(fields.size(), 4u) << line;
      values.push_back(fields.at(column));
    }
    return values;
  }

  TrainingFolder folder_{kData};
};

TEST_F(NormalizedRun, AutoIsMeanAndStdOfAllRanks) {
  const std::string expected = folder_.Digest("auto"), fit = Fit("auto");
  ASSERT_EQ(Column(fit, 0), std::vector<std::string>(kChannels, "image"));
  ASSERT_EQ(Column(fit, 1), (std::vector<std::string>{"0", "1", "2"}));
  const std::vector<std::string> mean = Column(fit, 2), std = Column(fit, 3);
  const std::string pixels = folder_.Images("train");
  for (size_t c = 0; c < kChannels; ++c) {
    long double sum = 0, squares = 0;
    const auto n = static_cast<long double>(pixels.size() / kChannels);
    for (size_t i = c; i < pixels.size(); i += kChannels) {
      sum += static_cast<uint8_t>(pixels[i]) / 255.L;
    }
    for (size_t i = c; i < pixels.size(); i += kChannels) {
      const long double from_mean = static_cast<uint8_t>(pixels[i]) / 255.L - sum / n;
      squares += from_mean * from_mean;
    }
    double found = 0;
    ASSERT_TRUE(absl::SimpleAtod(mean[c], &found));
    EXPECT_NEAR(found, static_cast<double>(sum / n), 1e-15);
    ASSERT_TRUE(absl::SimpleAtod(std[c], &found));
    EXPECT_NEAR(found, static_cast<double>(std::sqrt(squares / n)), 1e-15);
  }
  for (const int ranks : {2, 3}) {
    const std::string out = absl::StrCat("ranks", ranks);
    folder_.Digest(out, {absl::StrCat("--ranks=", ranks)});
    EXPECT_EQ(Fit(out), fit);
  }
  folder_.Digest("mpi", {}, {.ranks = 2});
  EXPECT_EQ(Fit("mpi"), fit);
  const std::string shown = "normalization of the training samples: \"image\" by mean [0.";
  EXPECT_THAT(Unwrapped(folder_.Train("plan", {"--plan"}).out), HasSubstr(shown));
  EXPECT_THAT(Unwrapped(folder_.Train("again").out), HasSubstr(shown));
  Say(absl::StrCat("mean: [", absl::StrJoin(mean, ", "), "] std: [", absl::StrJoin(std, ", "),
                   "]"));
  EXPECT_EQ(folder_.Digest("numbers"), expected);
  EXPECT_EQ(folder_.Digest("sim", {"--device=sim"}), expected);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "numbers/normalization.txt"));
}

TEST_F(NormalizedRun, OtherDataLeaveItAsItIs) {
  const std::string straight = folder_.Digest("straight");
  const std::string tested = folder_.Evaluate(folder_ / "straight");
  folder_.Digest("run", {"--steps=6"});
  EXPECT_EQ(folder_.Digest("run", {"--resume=latest"}), straight);
  const std::string fit = Fit("run");

  // Brighter pictures.  A new run has another normalization.
  const std::string images = folder_ / "train-images.idx", kept = ReadBytes(images);
  std::string brighter = kept;
  for (size_t i = kHeader; i < brighter.size(); ++i) {
    brighter[i] = static_cast<char>(255 - (255 - static_cast<uint8_t>(kept[i])) / 2);
  }
  WriteBytes(images, brighter);
  folder_.Digest("new");
  EXPECT_NE(Fit("new"), fit);
  for (const std::string ranks : {"--ranks=1", "--ranks=2"}) {
    std::filesystem::copy(folder_ / "run", folder_ / ranks,
                          std::filesystem::copy_options::recursive);
    const ToolResult resumed = folder_.Train(ranks, {"--resume=latest", "--steps=14", ranks});
    EXPECT_EQ(resumed.exit_code, 0) << resumed.ToString();
    EXPECT_THAT(Unwrapped(resumed.out + resumed.err), HasSubstr("other training data"));
    EXPECT_EQ(Fit(ranks), fit);
  }
  const std::string weights = "--weights=" + folder_ / "straight";
  folder_.Digest("tuned", {weights});
  EXPECT_EQ(Fit("tuned"), fit);

  // Tests do without the training data, also by a file of tensors.
  const std::string file = folder_ / "file.safetensors";
  ASSERT_EQ(RunTool("export", {weights, "--to=" + file}).exit_code, 0);
  std::filesystem::remove(images);
  EXPECT_EQ(folder_.Evaluate(folder_ / "straight"), tested);
  EXPECT_EQ(folder_.Evaluate(file), tested);
  EXPECT_EQ(folder_.Evaluate(folder_ / "straight", {"--ranks=2"}), tested);

  // Another trainer's numbers are its own, and said to be.
  WriteBytes(images, kept);
  Say("mean: 0.4");
  const ToolResult other = Succeeded(folder_.Train("other", {weights}));
  EXPECT_THAT(Unwrapped(other.out + other.err),
              HasSubstr("its inputs were normalized by its training samples, and those here are "
                        "not; write normalization { auto: true }"));
  EXPECT_NE(folder_.Evaluate(folder_ / "straight"), tested);
}

}  // namespace
}  // namespace gyre
