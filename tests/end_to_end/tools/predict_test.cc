// What predict says is what evaluate measures: by the run alone, by an exported file, on several
// ranks, paged, of files given by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/data/pictures/encode.h"
#include "tests/data/array_bytes.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

constexpr int64_t kPaged = 1 << 16;  // bytes of a device on which the net pages
const SyntheticData kData{.samples = 40, .channels = 3};

class Predict : public testing::Test {
 protected:
  Predict() {
    WriteTrainer(
        folder_ / "", ConvNetText(kData),
        {.optimizer = "sgd { momentum: 0.9 } ema { decay: 0.5 }", .rest = "batch: 8 steps: 6"});
    folder_.Digest("run");
  }

  std::string Said(std::vector<std::string> arguments, const ToolOptions& options = {}) const {
    return Succeeded(RunTool("predict", std::move(arguments), options)).out;
  }
  std::string Refused(std::vector<std::string> arguments) const {
    const ToolResult result = RunTool("predict", std::move(arguments));
    EXPECT_NE(result.exit_code, 0) << result.out;
    return result.err;
  }

  // A test sample as a PNG.
  std::string Png(int64_t sample) const {
    const std::string pixels = folder_.Images("test");
    const int64_t at = sample * kData.height * kData.width * kData.channels;
    const auto* first = reinterpret_cast<const uint8_t*>(pixels.data()) + at;
    return *PngOf({kData.height, kData.width, 3, first});
  }
  ToolResult Export(const std::string& weights, const std::string& to,
                    const std::vector<std::string>& more = {}) const {
    return RunTool("export",
                   Joined({"--weights=" + folder_ / weights, "--to=" + folder_ / to}, more));
  }

  TrainingFolder folder_{kData};
  const std::string run_ = "--run=" + folder_ / "run";
};

TEST_F(Predict, SaysWhatEvaluateMeasures) {
  const std::string csv = Said({run_, "--format=csv"});
  const std::vector<std::string> lines = absl::StrSplit(csv, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 18u);  // a header, and 17 samples
  // The share of samples whose likeliest class is the label.
  const std::string labels = folder_.Labels("test");
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

  EXPECT_NE(Said({run_, "--format=csv", "--last_weights"}), csv);

  // The same bits whatever runs it.
  EXPECT_EQ(Said({run_, "--format=csv", "--batch=5"}, {.ranks = 3}), csv);
  EXPECT_EQ(Said({run_, "--format=csv", "--batch=1", "--ranks=2"}), csv);
  for (const std::string ranks : {"--ranks=1", "--ranks=2"}) {
    for (const int64_t memory : {int64_t{1} << 20, kPaged}) {
      EXPECT_EQ(Said(OnSim(memory, {run_, "--format=csv", "--batch=4", ranks})), csv) << memory;
      EXPECT_EQ(folder_.Evaluate(folder_ / "run", OnSim(memory, {ranks})), measured) << memory;
    }
  }
  for (const char* to : {"net.gyre", "net.npz"}) ASSERT_EQ(Export("run", to).exit_code, 0);
  std::filesystem::rename(folder_ / "run", folder_ / "gone");
  EXPECT_EQ(Said({absl::StrCat("--run=", folder_ / "net.gyre"), "--format=csv"}), csv);
  EXPECT_EQ(Said({"--trainer=" + folder_ / "trainer.textproto", "--weights=" + folder_ / "net.npz",
                  "--format=csv"}),
            csv);
  // A changed text is damage.
  const std::string gyre = ReadBytes(folder_ / "net.gyre");
  WriteBytes(folder_ / "net.gyre", absl::StrReplaceAll(gyre, {{"base: 0.05", "base: 0.06"}}));
  EXPECT_THAT(Refused({absl::StrCat("--run=", folder_ / "net.gyre")}),
              HasSubstr("net.gyre: damaged: its metadata have crc32 "));
}

TEST_F(Predict, OfPicturesGivenByHand) {
  std::filesystem::create_directories(folder_ / "some/deeper");
  WriteBytes(folder_ / "some/a.png", Png(0));
  WriteBytes(folder_ / "some/deeper/b.PNG", Png(1));
  WriteBytes(folder_ / "some/notes.txt", "no picture");
  const std::vector<std::string> whole =
      absl::StrSplit(Said({run_, "--format=csv"}), '\n', absl::SkipEmpty());
  const std::vector<std::string> given =
      absl::StrSplit(Said({run_, "--format=csv", folder_ / "some"}), '\n', absl::SkipEmpty());
  ASSERT_EQ(given.size(), 3u);
  const auto shares = [](const std::string& line) { return line.substr(line.find(',')); };
  EXPECT_EQ(shares(given[1]), shares(whole[1]));
  EXPECT_EQ(shares(given[2]), shares(whole[2]));
  EXPECT_THAT(given[1], HasSubstr("some/a.png,"));
}

// One is cut, and one is empty.
TEST_F(Predict, NamesWhatIsDamagedAndGoesOn) {
  std::filesystem::create_directories(folder_ / "some");
  for (int i = 0; i < 9; ++i) {
    const std::string png = Png(i);
    WriteBytes(folder_ / absl::StrCat("some/", i, ".png"), i == 5   ? png.substr(0, png.size() / 2)
                                                           : i == 7 ? ""
                                                                    : png);
  }
  const std::vector<std::string> whole =
      absl::StrSplit(Said({run_, "--format=csv"}), '\n', absl::SkipEmpty());
  for (const std::string ranks : {"--ranks=1", "--ranks=2"}) {
    const ToolResult result =
        RunTool("predict", {run_, "--format=csv", "--batch=2", ranks, folder_ / "some"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(Unwrapped(result.err), HasSubstr("warning: " + folder_ / "some/5.png: "));
    EXPECT_THAT(Unwrapped(result.err), HasSubstr("warning: " + folder_ / "some/7.png: "));
    EXPECT_THAT(result.err, HasSubstr("error: 2 of 9 samples could not be read; the others "));
    const std::vector<std::string> lines = absl::StrSplit(result.out, '\n', absl::SkipEmpty());
    ASSERT_EQ(lines.size(), 8u);
    EXPECT_EQ(lines[6].substr(lines[6].find(',')), whole[7].substr(whole[7].find(',')));
    EXPECT_THAT(lines[7], HasSubstr("some/8.png,"));
  }
  const ToolResult array =
      RunTool("predict", {run_, "--out=" + folder_ / "a.npy", folder_ / "some"});
  EXPECT_EQ(array.exit_code, 1);
  // 64 bytes of header twice, and 9 rows of 10 shares.
  EXPECT_EQ(ReadBytes(folder_ / "a.npy").size(), 128u + 9 * 10 * sizeof(float));
}

// In the data's order, although rows of a batch are far apart there.
TEST_F(Predict, ContiguousRowsAreWrittenInOrder) {
  const std::string csv = Said({run_, "--format=csv"});
  EXPECT_EQ(Said({run_, "--format=csv", "--set=data.order=CONTIGUOUS", "--batch=1"}), csv);
  // 17 samples are 4 rows of 4.
  const std::string rows = Said({run_, "--format=csv", "--set=data.order=CONTIGUOUS", "--batch=4"});
  EXPECT_EQ(rows, csv.substr(0, rows.size()));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 17);
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
    Succeeded(RunTool("train", {absl::StrCat("--trainer=", folder_ / (name + ".textproto")),
                                absl::StrCat("--out=", folder_ / name)}));
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
  WriteBytes(folder_ / "more.csv", "x\n1000\n2000\n");
  const std::string two =
      Said({real, folder_ / "unlabelled.csv", folder_ / "more.csv", "--format=csv"});
  EXPECT_THAT(two, HasSubstr("unlabelled.csv: sample 59,"));
  EXPECT_THAT(two, HasSubstr("more.csv: sample 1,"));
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
  const ToolResult verified = Succeeded(Export("run", "net.onnx", {"--images=nchw", "--verify"}));
  EXPECT_THAT(verified.out, HasSubstr("verified by OpenCV for 3 samples: differs by "));
  const std::string model = ReadBytes(folder_ / "net.onnx");
  for (const char* name : {"net.gyre", "net.safetensors"}) {
    ASSERT_EQ(Export("run", name).exit_code, 0);
    ASSERT_EQ(Export(name, "net.onnx", {"--images=nchw"}).exit_code, 0);
    EXPECT_EQ(ReadBytes(folder_ / "net.onnx"), model);
  }
  EXPECT_THAT(Export("run", "net.onnx", {"--images=chwn"}).err, HasSubstr("expected nhwc or nchw"));
  EXPECT_THAT(Export("run", "net.onnx", {"--outputs=loss"}).err,
              HasSubstr("is a loss or a metric, of no single sample; name what it reads"));
  EXPECT_EQ(ReadBytes(folder_ / "net.onnx"), model);
}

// Each line is answered by itself, with the numbers of the whole window.
TEST_F(Predict, StreamsStepByStep) {
  std::string rows = "x,y\n", some = "x\n", lines;
  for (int i = 0; i < 60; ++i) absl::StrAppend(&rows, i * 7 % 11, ",", i * 7 % 11 + i % 3, "\n");
  for (int i = 0; i < 6; ++i) {
    absl::StrAppend(&some, i * 5 % 7, "\n");
    absl::StrAppend(&lines, i * 5 % 7, "\n");
  }
  WriteBytes(folder_ / "rows.csv", rows);
  WriteBytes(folder_ / "some.csv", some);
  WriteBytes(folder_ / "lines.txt", lines + "\n" + lines + "x\n");
  WriteBytes(
      folder_ / "net.textproto",
      "name: \"s\" input { name: \"columns\" dims: [6, 1] } input { name: \"label\" dims: [6, "
      "1] } layer { name: \"lstm\" input: \"columns\" lstm { hidden: 4 } } layer { name: "
      "\"out\" dense { outputs: 1 } } layer { name: \"loss\" input: [\"out\", \"label\"] "
      "mean_squared_error {} }");
  WriteBytes(
      folder_ / "trainer.textproto",
      "net: \"net.textproto\" data { train { table { file: \"rows.csv\" column: \"x\" label: "
      "\"y\" window: 6 } } normalization { input: \"columns\" auto: true } normalization { "
      "input: \"label\" auto: true } } optimizer { sgd {} } learning_rate { base: 0.1 } "
      "batch: 5 steps: 9");
  folder_.Digest("stream");
  const std::string stream = absl::StrCat("--run=", folder_ / "stream");
  const std::string csv = Said({stream, folder_ / "some.csv", "--format=csv"});
  const std::vector<std::string> whole =
      absl::StrSplit(csv.substr(csv.find('\n') + 1), absl::ByAnyChar(",\n"), absl::SkipEmpty());
  ASSERT_EQ(whole.size(), 7u);
  const ToolResult streamed =
      RunTool("predict", {stream, "--stream", "--format=csv"}, {.in = folder_ / "lines.txt"});
  EXPECT_EQ(streamed.exit_code, 1);
  EXPECT_THAT(streamed.err, HasSubstr("standard input:14: expected numbers, got \"x\""));
  const std::vector<std::string> answers = absl::StrSplit(streamed.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(answers.size(), 13u);
  EXPECT_EQ(answers[0], "sample,out");
  for (size_t i = 1; i < answers.size(); ++i) {
    const std::pair<std::string, std::string> cells = absl::StrSplit(answers[i], ',');
    EXPECT_EQ(cells.first, absl::StrCat(i <= 6 ? i : i + 1));  // the line's number
    EXPECT_NEAR(std::stod(cells.second), std::stod(whole[i <= 6 ? i : i - 6]), 1e-5);
  }
  // An answer does not wait for the next line.
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Tool tool("predict", {stream, "--stream", "--format=json"}, {.in = pipe});
  std::ofstream line(pipe);
  line << "3" << std::endl;
  EXPECT_TRUE(tool.Await([&] { return absl::StartsWith(tool.Out(), "{\"sample\":\"1\","); }));
  line << "4" << std::endl;
  line.close();
  const ToolResult two = Succeeded(tool.Wait());
  EXPECT_EQ(std::count(two.out.begin(), two.out.end(), '\n'), 2);
  EXPECT_THAT(Refused({stream, "--stream", folder_ / "some.csv"}), HasSubstr("leave out files"));
  EXPECT_THAT(Refused({run_, "--stream"}), HasSubstr("expected dims"));
}

TEST_F(Predict, Errors) {
  EXPECT_THAT(Refused({}), HasSubstr("--run is missing, or --trainer and --weights"));
  EXPECT_THAT(Refused({run_, "missing.png"}), HasSubstr("missing.png: is not there"));
  EXPECT_THAT(Refused({run_, "--out=" + folder_ / "no/a.csv"}), HasSubstr("no/a.csv: "));
  EXPECT_THAT(Refused(OnSim(5000, {run_})), HasSubstr("; lower --batch, which is 17"));
  WriteBytes(folder_ / "a.csv", "x\n1\n");
  EXPECT_THAT(Refused({run_, folder_ / "a.csv"}),
              HasSubstr("expected pictures or folders of them"));
  WriteBytes(folder_ / "a.png", "no picture");
  EXPECT_THAT(Unwrapped(Refused({run_, folder_ / "a.png", folder_ / "a.csv"})),
              HasSubstr("/a.csv: is a file that ends in .csv, but " + folder_ / "a.png" +
                        " is a picture or a folder of them; give files of one kind: "));
  EXPECT_THAT(Refused({run_, folder_ / "a.png"}), HasSubstr("error: no sample of 1 could be read"));
  EXPECT_THAT(Refused({"--run=nope"}), HasSubstr("--run: cannot open nope: "));
  const std::string out = absl::StrCat("--out=", folder_ / "a.csv");
  EXPECT_THAT(Refused({run_, folder_ / "a.csv", out}), HasSubstr("is also what is predicted"));
  EXPECT_THAT(Refused({run_, "--out=/dev/null"}),
              HasSubstr("the name of a file, got that of a device"));
  EXPECT_THAT(Refused({run_, "--outputs=nothing"}), HasSubstr("unknown layer \"nothing\""));
  EXPECT_THAT(Refused({run_, "--outputs=fc1,"}), HasSubstr("layers with a comma between two"));
  EXPECT_THAT(Refused({"--run=" + folder_ / "net.onnx"}),
              HasSubstr("error: --run: " + folder_ / "net.onnx: is an ONNX model"));
  // What is of no use beside something else.
  const std::string csv = folder_ / "a.csv";
  EXPECT_THAT(Refused({run_, "--data=train", csv}),
              HasSubstr("--data=train: is of no use with " + csv + "; leave one of them out"));
  EXPECT_THAT(Refused({run_, "--batch=8", "--stream"}), HasSubstr("of no use with --stream"));
  EXPECT_THAT(Refused({run_, "--top=2", "--out=b.csv"}), HasSubstr("of no use with --out=b.csv"));
  EXPECT_THAT(Refused({run_, "--format=xml"}), HasSubstr("--format=xml: expected table"));
  EXPECT_THAT(Refused({run_, "--out=a.xml"}), HasSubstr("--out=a.xml: expected a name"));
  EXPECT_THAT(Refused({run_, "--format=npy"}), HasSubstr("give --out"));
  EXPECT_THAT(Refused({run_, "--data=all"}), HasSubstr("--data=all: expected test or train"));
  // Nothing stays of what was given, whenever it is refused.
  const std::string temporary = folder_ / "tmp";
  std::filesystem::create_directories(temporary);
  RunTool("predict", {run_, folder_ / "a.png"}, {.env = {{"TMPDIR", temporary}}});
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

TEST_F(Predict, EvaluateReportsClasses) {
  const std::string report = "--report=" + folder_ / "report";
  const ToolResult result = Succeeded(RunTool("evaluate", {run_, report}));
  const ToolResult bad =
      RunTool("evaluate", {run_, "--report=" + folder_ / "net.textproto/report"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("net.textproto/report: expected a folder to write, but "));
  EXPECT_THAT(result.out, HasSubstr(folder_.Evaluate(folder_ / "run")));
  EXPECT_THAT(result.out, HasSubstr("top-1 "));
  EXPECT_THAT(ReadBytes(folder_ / "report/confusion.csv"), HasSubstr("label,0,1,"));
  const ToolResult json = RunTool("evaluate", {run_, "--json", report});
  EXPECT_THAT(json.out, HasSubstr("\"report\":{\"top_1\":"));
}

}  // namespace
}  // namespace gyre
