// Models of models/ and of random nets say in onnxruntime what Gyre says, for batches of 1 and 3,
// and onnx.checker takes them.  Skips where Python lacks one of the two.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/data/temp_folder.h"
#include "tests/training/onnx/onnx_case.h"
#include "tests/training/onnx/random_net.h"

namespace gyre {
namespace {

constexpr char kJudge[] = "tests/training/onnx/onnx_judge.py";

std::string Setting(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

void Write(const absl::StatusOr<std::unique_ptr<OnnxCase>>& made, const TempFolder& folder,
           const std::string& name) {
  ASSERT_TRUE(made.ok()) << name << ": " << made.status();
  const absl::Status written = WriteOnnxCase(**made, {1, 3}, folder.path(), name);
  ASSERT_TRUE(written.ok()) << name << ": " << written;
}

// By the Python of GYRE_ONNX_PYTHON, or the first one.
void Judge(const std::string& folder) {
  const std::string python = Setting("GYRE_ONNX_PYTHON", "python3");
  const int ended = std::system(absl::StrCat(python, " ", kJudge, " ", folder).c_str());
  const int status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  if (status == 77) GTEST_SKIP() << python << " lacks onnxruntime, onnx or numpy";
  EXPECT_EQ(status, 0);
}

// Small ones of each kind.  GYRE_ONNX_MODELS=all takes all, which needs 8 GB and minutes.
TEST(OnnxJudge, Models) {
  std::vector<std::string> models = {"lenet",          "mlp",           "table",
                                     "fashion_resnet", "imdb_lstm",     "gpt_small",
                                     "frnn",           "lstm_lm_small", "mobilenet_v2"};
  const std::string setting = Setting("GYRE_ONNX_MODELS", "");
  if (setting == "all") {
    models.clear();
    for (const auto& entry : std::filesystem::directory_iterator("models")) {
      if (std::filesystem::exists(entry.path() / "net.textproto")) {
        models.push_back(entry.path().filename());
      }
    }
  } else if (!setting.empty()) {
    models = {setting};
  }
  const TempFolder folder;
  for (const std::string& model : models) {
    auto net = ParseNet(absl::StrCat("models/", model, "/net.textproto")).value();
    Write(MakeOnnxCase(std::move(net), {}, {}, /*seed=*/1), folder, model);
  }
  Judge(folder.path());
}

// GYRE_ONNX_RUNS: folders of trained runs, with commas.
TEST(OnnxJudge, TrainedRuns) {
  const std::string runs = Setting("GYRE_ONNX_RUNS", "");
  if (runs.empty()) GTEST_SKIP() << "GYRE_ONNX_RUNS names no run";
  const TempFolder folder;
  for (const std::string& run : std::vector<std::string>(absl::StrSplit(runs, ','))) {
    Write(CaseOfRun(run, {}), folder, std::filesystem::path(run).filename().string());
  }
  Judge(folder.path());
}

// GYRE_ONNX_RANDOM: the number of nets.  GYRE_ONNX_SEED: the first of them.
TEST(OnnxJudge, RandomNets) {
  int nets = 30, seed = 1;
  ASSERT_TRUE(absl::SimpleAtoi(Setting("GYRE_ONNX_RANDOM", "30"), &nets));
  ASSERT_TRUE(absl::SimpleAtoi(Setting("GYRE_ONNX_SEED", "1"), &seed));
  const TempFolder folder;
  int refused = 0;
  for (int i = seed; i < seed + nets; ++i) {
    const RandomNet random = MakeRandomNet(static_cast<uint64_t>(i));
    auto net = ParseNetText(random.text, "net.textproto");
    ASSERT_TRUE(net.ok()) << net.status() << "\n" << random.text;
    const auto made = MakeOnnxCase(
        *std::move(net), {},
        {.outputs = random.outputs, .keep_batch_norm = i % 2 == 0, .channels_first = i % 3 == 0},
        static_cast<uint64_t>(i));
    if (absl::IsUnimplemented(made.status())) {
      ++refused;
      continue;
    }
    Write(made, folder, absl::StrCat("random_", i));
    ASSERT_FALSE(HasFatalFailure()) << random.text;
  }
  EXPECT_LE(refused, nets / 10);
  Judge(folder.path());
}

}  // namespace
}  // namespace gyre
