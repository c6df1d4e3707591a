// What predict says is what evaluate measures: by the run alone, by an exported file, on several
// ranks, paged, of files given by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/data/pictures/encode.h"
#include "tests/data/array_bytes.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

const SyntheticData kData{.samples = 40, .channels = 3};

class Predict : public testing::Test {
 protected:
  Predict() {
    WriteTrainer(folder_ / "", ConvNetText(kData), {.rest = "batch: 8 steps: 6"});
    folder_.Digest("run");
  }

  std::string Said(std::vector<std::string> arguments, const ToolOptions& options = {}) const {
    const ToolResult result = RunTool("predict", std::move(arguments), options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  std::string Refused(std::vector<std::string> arguments) const {
    const ToolResult result = RunTool("predict", std::move(arguments));
    EXPECT_NE(result.exit_code, 0) << result.out;
    return result.err;
  }

  TrainingFolder folder_{kData};
};

TEST_F(Predict, SaysWhatEvaluateMeasures) {
  const std::string run = absl::StrCat("--run=", folder_ / "run");
  const std::string csv = Said({run, "--format=csv"});
  const std::vector<std::string> lines = absl::StrSplit(csv, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 18u);  // a header, and 17 samples
  // The share of samples whose likeliest class is the label.
  const std::string labels = ReadBytes(folder_ / "test-labels.idx").substr(8);
  int right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::vector<std::string> cells = absl::StrSplit(lines[i + 1], ',');
    double most = -1;
    size_t best = 0;
    for (size_t c = 1; c < cells.size(); ++c) {
      if (std::stod(cells[c]) > most) most = std::stod(cells[c]), best = c - 1;
    }
    right += best == static_cast<size_t>(labels[i]);
  }
  const std::string measured = folder_.Evaluate(folder_ / "run");
  EXPECT_THAT(measured, HasSubstr(absl::StrFormat("test accuracy %.6f", right / 17.0)));

  // The same bits whatever runs it.
  EXPECT_EQ(Said({run, "--format=csv", "--batch=5"}, {.ranks = 3}), csv);
  std::vector<std::string> on_sim = OnSim(1 << 20, {run, "--format=csv"});
  EXPECT_EQ(Said(on_sim), csv);
  ASSERT_EQ(RunTool("export", {absl::StrCat("--weights=", folder_ / "run"),
                               absl::StrCat("--to=", folder_ / "net.gyre")})
                .exit_code,
            0);
  std::filesystem::rename(folder_ / "run", folder_ / "gone");
  EXPECT_EQ(Said({absl::StrCat("--run=", folder_ / "net.gyre"), "--format=csv"}), csv);
}

TEST_F(Predict, OfPicturesGivenByHand) {
  const std::string pixels = ReadBytes(folder_ / "test-images.idx").substr(20);
  const size_t bytes = static_cast<size_t>(kData.height * kData.width * 3);
  std::filesystem::create_directories(folder_ / "some/deeper");
  for (const auto& [name, i] : {std::pair("some/a.png", 0), std::pair("some/deeper/b.PNG", 1)}) {
    const auto* first = reinterpret_cast<const uint8_t*>(pixels.data()) + i * bytes;
    WriteBytes(folder_ / name, *PngOf({kData.height, kData.width, 3, first}));
  }
  WriteBytes(folder_ / "some/notes.txt", "no picture");
  const std::string run = absl::StrCat("--run=", folder_ / "run");
  const std::vector<std::string> whole =
      absl::StrSplit(Said({run, "--format=csv"}), '\n', absl::SkipEmpty());
  const std::vector<std::string> given =
      absl::StrSplit(Said({run, "--format=csv", folder_ / "some"}), '\n', absl::SkipEmpty());
  ASSERT_EQ(given.size(), 3u);
  const auto shares = [](const std::string& line) { return line.substr(line.find(',')); };
  EXPECT_EQ(shares(given[1]), shares(whole[1]));
  EXPECT_EQ(shares(given[2]), shares(whole[2]));
  EXPECT_THAT(given[1], HasSubstr("some/a.png,"));
}

// A table's label is in its own unit, and is not needed.  The run's own split by class is read
// again.
TEST_F(Predict, OfTables) {
  std::string rows = "x,kind,y\n", unlabelled = "x\n";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&rows, i, ",", i % 2 == 0 ? "a" : "b", ",", 1000 + 10 * i, "\n");
    absl::StrAppend(&unlabelled, i, "\n");
  }
  WriteBytes(folder_ / "rows.csv", rows);
  WriteBytes(folder_ / "unlabelled.csv", unlabelled);
  const auto train = [&](const std::string& name, const std::string& label, const std::string& loss,
                         const std::string& data) {
    WriteBytes(folder_ / (name + "-net.textproto"),
               absl::StrCat("name: \"t\" input { name: \"columns\" dims: 1 } input { ", label,
                            " } layer { name: \"out\" input: \"columns\" ", loss));
    WriteBytes(folder_ / (name + ".textproto"),
               absl::StrCat("net: \"", name, "-net.textproto\" data { ", data,
                            " normalization { input: \"columns\" auto: true } } optimizer { sgd {} "
                            "} learning_rate { base: 0.1 } batch: 30 steps: 100"));
    const ToolResult result =
        RunTool("train", {absl::StrCat("--trainer=", folder_ / (name + ".textproto")),
                          absl::StrCat("--out=", folder_ / name)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return absl::StrCat("--run=", folder_ / name);
  };
  const std::string real =
      train("real", "name: \"label\" dims: 1",
            "dense { outputs: 1 } } layer { name: \"loss\" input: [\"out\", \"label\"] "
            "mean_squared_error {} }",
            "train { table { file: \"rows.csv\" column: \"x\" label: \"y\" } } "
            "normalization { input: \"label\" auto: true }");
  const std::vector<std::string> lines = absl::StrSplit(
      Said({real, folder_ / "unlabelled.csv", "--format=csv"}), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 61u);
  for (int i = 0; i < 60; ++i) {
    EXPECT_NEAR(std::stod(lines[i + 1].substr(lines[i + 1].find(',') + 1)), 1000 + 10 * i, 10);
  }
  const std::string classes =
      train("classes", "name: \"label\" type: LABEL",
            "dense { outputs: 2 } } layer { name: \"loss\" input: [\"out\", \"label\"] "
            "softmax_cross_entropy {} }",
            "train { table { file: \"rows.csv\" column: \"x\" label: \"kind\" } } "
            "split { test: 0.2 by: CLASS }");
  const std::string held = Said({classes});
  EXPECT_EQ(std::count(held.begin(), held.end(), '\n'), 12);
  EXPECT_THAT(held, HasSubstr("  a 0."));
}

// A run, or what was exported of it, as a model in ONNX that another program reads.
TEST_F(Predict, ExportsOnnx) {
  const auto exported = [&](const std::string& weights, std::vector<std::string> arguments) {
    arguments.push_back("--weights=" + folder_ / weights);
    arguments.push_back("--to=" + folder_ / "net.onnx");
    return RunTool("export", std::move(arguments));
  };
  const ToolResult verified = exported("run", {"--images=nchw", "--verify"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("verified by OpenCV for 3 samples: differs by "));
  const std::string model = ReadBytes(folder_ / "net.onnx");
  for (const char* name : {"net.gyre", "net.safetensors"}) {
    ASSERT_EQ(
        RunTool("export", {"--weights=" + folder_ / "run", absl::StrCat("--to=", folder_ / name)})
            .exit_code,
        0);
    ASSERT_EQ(exported(name, {"--images=nchw"}).exit_code, 0);
    EXPECT_EQ(ReadBytes(folder_ / "net.onnx"), model);
  }
  EXPECT_THAT(exported("run", {"--images=chwn"}).err, HasSubstr("expected nhwc or nchw"));
  EXPECT_THAT(exported("run", {"--outputs=loss"}).err,
              HasSubstr("ONNX has no form of a loss or a metric"));
  EXPECT_EQ(ReadBytes(folder_ / "net.onnx"), model);
}

TEST_F(Predict, Errors) {
  const std::string run = absl::StrCat("--run=", folder_ / "run");
  EXPECT_THAT(Refused({}), HasSubstr("--run is missing"));
  EXPECT_THAT(Refused({run, "missing.png"}), HasSubstr("missing.png: is not there"));
  WriteBytes(folder_ / "a.csv", "x\n1\n");
  EXPECT_THAT(Refused({run, folder_ / "a.csv"}), HasSubstr("expected pictures or folders of them"));
  const std::string out = absl::StrCat("--out=", folder_ / "a.csv");
  EXPECT_THAT(Refused({run, folder_ / "a.csv", out}), HasSubstr("is also what is predicted"));
  EXPECT_THAT(Refused({run, "--out=/dev/null"}), HasSubstr("expected a file, got a device"));
  EXPECT_THAT(Refused({run, "--outputs=nothing"}), HasSubstr("unknown layer \"nothing\""));
  EXPECT_THAT(Refused({run, "--format=xml"}), HasSubstr("--format=xml: expected table"));
  EXPECT_THAT(Refused({run, "--out=a.xml"}), HasSubstr("--out=a.xml: expected a name"));
  EXPECT_THAT(Refused({run, "--format=npy"}), HasSubstr("give --out"));
  EXPECT_THAT(Refused({run, "--data=all"}), HasSubstr("--data=all: expected test or train"));
}

TEST_F(Predict, EvaluateReportsClasses) {
  const ToolResult result = RunTool("evaluate", {absl::StrCat("--run=", folder_ / "run"),
                                                 absl::StrCat("--report=", folder_ / "report")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(folder_.Evaluate(folder_ / "run")));
  EXPECT_THAT(result.out, HasSubstr("top-1 "));
  EXPECT_THAT(ReadBytes(folder_ / "report/confusion.csv"), HasSubstr("label,0,1,"));
}

}  // namespace
}  // namespace gyre
