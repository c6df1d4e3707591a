// A program that trains by libgyre.so: learns, saves and goes on to the same bits, and answers
// mistakes with errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gyre/gyre.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kNet[] = R"(
    name: "sum"
    input { name: "x" dims: 3 }
    input { name: "class" type: LABEL }
    layer { name: "fc1" input: "x" dense { outputs: 8 } }
    layer { name: "relu" relu {} }
    layer { name: "drop" dropout { rate: 0.1 } }
    layer { name: "scores" dense { outputs: 2 } }
    layer { name: "loss" input: ["scores", "class"] softmax_cross_entropy {} }
    layer { name: "accuracy" input: ["scores", "class"] accuracy {} })";

std::string TrainerText(const std::string& more = "") {
  // Tests and exports are by averages.
  return absl::StrCat(
      "batch: 8 steps: 40 optimizer { adam {} ema { decay: 0.7 } } learning_rate { base: 0.02 }",
      more);
}

// Whether the sum of three numbers is positive.
struct Samples {
  std::vector<float> x;
  std::vector<int32_t> classes;

  Samples(size_t count, int seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::uniform_real_distribution<float> any(-1, 1);
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int k = 0; k < 3; ++k) sum += x.emplace_back(any(random));
      classes.push_back(sum > 0 ? 1 : 0);
    }
  }
};

TrainingRunOptions Options(const std::string& more = "") {
  TrainingRunOptions options;
  options.trainer_text = TrainerText(more);
  options.net_text = kNet;
  options.threads = 1;
  return options;
}

testing::AssertionResult Ok(const Status& status) {
  return status.ok() ? testing::AssertionSuccess()
                     : testing::AssertionFailure() << status.message();
}

void Steps(TrainingRun& run, int from, int to) {
  for (int step = from; step < to; ++step) {
    Samples batch(static_cast<size_t>(run.batch()), step);
    ASSERT_TRUE(Ok(run.Step({{"x", batch.x}, {"class", batch.classes}})));
  }
}

// The weights' file.
std::string WeightsOf(TrainingRun& run, const std::string& path) {
  EXPECT_TRUE(Ok(run.Export(path)));
  return ReadBytes(path);
}

class TrainingRunTest : public testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(TrainingRunTest, LearnsAndPredicts) {
  std::vector<StepMetrics> told;
  TrainingRunOptions options = Options();
  options.on_metrics = [&](const StepMetrics& metrics) { told.push_back(metrics); };
  TrainingRun run;
  ASSERT_TRUE(Ok(run.Open(options)));
  EXPECT_EQ(run.batch(), 8);
  ASSERT_EQ(run.arrays().size(), 2u);
  EXPECT_EQ(run.arrays()[1].type, GYRE_I32);
  Steps(run, 0, 40);
  EXPECT_EQ(run.steps(), 40);
  ASSERT_EQ(told.size(), 40u);
  EXPECT_EQ(told[39].step, 40);
  EXPECT_EQ(told[39].values[0].first, "loss");
  EXPECT_LT(told[39].values[0].second, told[0].values[0].second);
  Steps(run, 40, 45);  // beyond the text's steps, at its last rate

  Samples test(80, 1000);
  ASSERT_TRUE(run.Test(80, {{"x", test.x}, {"class", test.classes}}).ok());
  EXPECT_TRUE(told.back().is_test);
  double accuracy = 0;
  for (const auto& [name, value] : told.back().values) {
    if (name == "accuracy") accuracy = value;
  }
  EXPECT_GT(accuracy, 0.8);

  // The same by the exported net.
  ASSERT_TRUE(run.Export(folder_ / "sum.gyre").ok());
  Predictor predictor;
  ASSERT_TRUE(Ok(predictor.Open(folder_ / "sum.gyre", {.max_batch = 80, .threads = 1})));
  std::vector<float> shares(160);
  ASSERT_TRUE(predictor.Run(80, {{"x", test.x}, {"scores", shares}}).ok());
  int right = 0;
  for (size_t i = 0; i < 80; ++i) {
    right += (shares[2 * i + 1] > shares[2 * i] ? 1 : 0) == test.classes[i];
  }
  EXPECT_NEAR(right / 80.0, accuracy, 1e-9);
}

TEST_F(TrainingRunTest, GoesOnToTheSameBits) {
  TrainingRunOptions options = Options(" accumulate: 2");
  options.out = folder_ / "out";
  TrainingRun run;
  ASSERT_TRUE(run.Open(options).ok());
  Steps(run, 0, 7);
  EXPECT_EQ(run.steps(), 3);
  Status save = run.Save();
  EXPECT_EQ(save.code(), GYRE_FAILED_PRECONDITION);
  EXPECT_EQ(save.message(), "1 of the step's 2 batches are done; save after the last");
  Steps(run, 7, 8);
  save = run.Save();
  ASSERT_TRUE(save.ok()) << save.message();
  Steps(run, 8, 20);
  const std::string straight = WeightsOf(run, folder_ / "a.safetensors");
  // Back, in the same run.
  ASSERT_TRUE(Ok(run.Load()));
  EXPECT_EQ(run.steps(), 4);
  Steps(run, 8, 20);
  EXPECT_EQ(WeightsOf(run, folder_ / "b.safetensors"), straight);

  // And in another, whose run has ended.
  run.Close();
  options.resume = "latest";
  TrainingRun resumed;
  ASSERT_TRUE(Ok(resumed.Open(options)));
  EXPECT_EQ(resumed.steps(), 4);
  Steps(resumed, 8, 20);
  EXPECT_EQ(WeightsOf(resumed, folder_ / "c.safetensors"), straight);
  ASSERT_TRUE(resumed.Save().ok());

  Predictor predictor;
  EXPECT_TRUE(predictor.Open(folder_ / "out").ok());
  TrainingRunOptions on_sim = options;
  on_sim.resume = folder_ / "out/checkpoints/step_00000004";
  on_sim.out = "";
  on_sim.device = "sim";
  TrainingRun simulated;
  ASSERT_TRUE(Ok(simulated.Open(on_sim)));
  Steps(simulated, 8, 20);
  EXPECT_EQ(WeightsOf(simulated, folder_ / "d.safetensors"), straight);
}

// Parameters that train from a step on, wherever the program stops.
TEST_F(TrainingRunTest, EntersPhases) {
  TrainingRunOptions options = Options(" accumulate: 2");
  options.net_text = absl::StrReplaceAll(
      kNet, {{"outputs: 8", "outputs: 8 weight { trainable_from: 4 } bias { trainable_from: 6 }"}});
  TrainingRun nowhere;
  EXPECT_EQ(
      nowhere.Open(options).message(),
      "net_text: trainable_from: a run goes on from a checkpoint where more parameters train; "
      "open it with `out`, a folder for checkpoints");
  options.out = folder_ / "straight";
  TrainingRun run;
  ASSERT_TRUE(Ok(run.Open(options)));
  Steps(run, 0, 20);
  const std::string straight = WeightsOf(run, folder_ / "a.safetensors");
  for (const int stop : {3, 4, 5}) {
    options.out = folder_ / absl::StrCat("stopped", stop);
    options.resume = "";
    TrainingRun first;
    ASSERT_TRUE(first.Open(options).ok());
    Steps(first, 0, 2 * stop);
    ASSERT_TRUE(first.Save().ok());
    first.Close();
    options.resume = "latest";
    TrainingRun resumed;
    ASSERT_TRUE(Ok(resumed.Open(options)));
    EXPECT_EQ(resumed.steps(), stop);
    Steps(resumed, 2 * stop, 20);
    EXPECT_EQ(WeightsOf(resumed, folder_ / "b.safetensors"), straight) << stop;
    // Back from the last phase to the first.
    if (stop != 3) continue;
    const Status back = resumed.Load(folder_ / "stopped3/checkpoints/step_00000003");
    EXPECT_THAT(back.message(), HasSubstr("holds a checkpoint of step 6, beyond the one"));
    std::filesystem::remove_all(folder_ / "stopped3/checkpoints/step_00000004");
    std::filesystem::remove_all(folder_ / "stopped3/checkpoints/step_00000006");
    ASSERT_TRUE(Ok(resumed.Load(folder_ / "stopped3/checkpoints/step_00000003")));
    Steps(resumed, 6, 20);
    EXPECT_EQ(WeightsOf(resumed, folder_ / "c.safetensors"), straight);
  }
}

TEST_F(TrainingRunTest, TakesTexts) {
  // The same as the tool's files, whose data it does not read.
  const SyntheticData data{.height = 8, .width = 8};
  WriteTrainer(folder_ / "", ConvNetText(data));
  TrainingRunOptions options;
  options.trainer_file = folder_ / "trainer.textproto";
  options.threads = 1;
  TrainingRun run;
  ASSERT_TRUE(Ok(run.Open(options)));
  const std::vector<uint8_t> images(8 * 64, 100);
  const std::vector<int32_t> labels(8, 3);
  EXPECT_TRUE(run.Step({{"image", images}, {"label", labels}}).ok());
}

TEST_F(TrainingRunTest, KeepsClasses) {
  TrainingRunOptions options = Options();
  options.classes = {"not positive", "positive"};
  options.out = folder_ / "out";
  TrainingRun run;
  ASSERT_TRUE(Ok(run.Open(options)));
  Steps(run, 0, 1);
  ASSERT_TRUE(run.Save().ok());
  ASSERT_TRUE(run.Export(folder_ / "sum.gyre").ok());
  for (const char* name : {"out", "sum.gyre"}) {
    Predictor predictor;
    ASSERT_TRUE(Ok(predictor.Open(folder_ / name)));
    EXPECT_EQ(predictor.arrays().back().classes, options.classes);
  }
  // A new run has its own.
  options.weights = folder_ / "sum.gyre";
  options.out = "";
  options.classes = {"a", "b"};
  EXPECT_TRUE(Ok(run.Open(options)));
}

// Errors know options, and no flags of the tools.
TEST_F(TrainingRunTest, SpeaksOfOptions) {
  TrainingRunOptions options = Options();
  options.out = folder_ / "out";
  TrainingRun run;
  ASSERT_TRUE(run.Open(options).ok());
  ASSERT_TRUE(run.Save().ok());
  ASSERT_TRUE(run.Export(folder_ / "sum.npz").ok());
  run.Close();
  const auto refusal = [&](const TrainingRunOptions& wrong) {
    const Status opened = run.Open(wrong);
    EXPECT_FALSE(opened.ok());
    EXPECT_THAT(opened.message(), Not(HasSubstr("--")));
    return opened.message();
  };
  EXPECT_EQ(refusal(options), absl::StrCat(options.out,
                                           " already holds checkpoints; go on with resume=latest, "
                                           "or choose another out"));
  options = Options();
  options.weights = folder_ / "sum.npz";
  options.net_text = absl::StrReplaceAll(kNet, {{"outputs: 8", "outputs: 9"}});
  EXPECT_THAT(refusal(options), HasSubstr("the net expects for \"fc1.bias\" F32 [9]"));
  options.weights = "";
  options.device = "sim";
  options.device_memory = 1000;
  EXPECT_THAT(refusal(options), HasSubstr("give more device_memory"));
}

TEST_F(TrainingRunTest, Misuse) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto refusal = [](const TrainingRunOptions& options) {
    TrainingRun run;
    const Status opened = run.Open(options);
    EXPECT_FALSE(opened.ok());
    return opened.message();
  };
  TrainingRunOptions options;
  EXPECT_EQ(refusal(options),
            "expected trainer_text and net_text, or trainer_file, got both or neither");
  options.trainer_text = TrainerText();
  EXPECT_EQ(refusal(options), "net_text: is missing");
  options.net_text = "layer {";
  EXPECT_THAT(refusal(options), StartsWith("net_text:1:"));
  options.net_text = kNet;
  options.trainer_text = "batch: 8";
  EXPECT_THAT(refusal(options), HasSubstr("trainer_text"));
  options.trainer_text = TrainerText(" epochs: 3");
  EXPECT_THAT(refusal(options), HasSubstr("steps"));
  options.trainer_text = TrainerText("\n# data {\ndata  {\nnormalization { input: \"y\" } }");
  EXPECT_THAT(refusal(options), StartsWith("trainer_text:4:"));
  options.trainer_text = TrainerText(" data { augmentation { flip: true } }");
  EXPECT_THAT(refusal(options), HasSubstr("the program feeds the batches; leave it out"));
  options = Options();
  options.classes = {"a", "b\nc"};
  EXPECT_EQ(refusal(options),
            "classes: expected a name without a line's end for number 1, got \"b\\nc\"");
  options = Options();
  options.resume = "latest";
  EXPECT_EQ(refusal(options), "resume: \"latest\" needs `out`, the folder to resume in");
  options.resume = folder_ / "none";
  EXPECT_THAT(refusal(options), HasSubstr("none"));
  options = Options();
  options.weights = folder_ / "none.safetensors";
  EXPECT_THAT(refusal(options), StartsWith(absl::StrCat("weights: cannot open ", options.weights)));
  options = Options();
  options.out = "/proc/none";
  EXPECT_THAT(refusal(options), HasSubstr("/proc/none"));
  EXPECT_EQ(gyre_training_open(nullptr, nullptr), GYRE_INVALID_ARGUMENT);
  gyre_training_run* opened = nullptr;
  EXPECT_EQ(gyre_training_open(nullptr, &opened), GYRE_INVALID_ARGUMENT);
  EXPECT_STREQ(gyre_last_error(), "options: is null");
  EXPECT_EQ(gyre_training_step(nullptr, nullptr, 0), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_training_batch(nullptr), 0);
  EXPECT_EQ(gyre_training_array(nullptr, 0), nullptr);
  gyre_training_close(nullptr);

  TrainingRun run;
  Status within;
  options = Options();
  options.on_metrics = [&](const StepMetrics&) { within = run.Save(); };
  ASSERT_TRUE(run.Open(options).ok());
  Samples batch(8, 1);
  EXPECT_EQ(run.Step({{"x", batch.x}}).message(), "\"class\": is missing");
  EXPECT_THAT(run.Test(7, {{"x", batch.x}, {"class", batch.classes}}).message(),
              StartsWith("samples: expected a multiple of 8"));
  EXPECT_THAT(
      run.Test(int64_t{1} << 62, {{"x", batch.x.data(), 0}, {"class", batch.classes}}).message(),
      HasSubstr("\"x\": expected 4611686018427387904 times 12 bytes"));
  EXPECT_EQ(run.Save().message(), "the run was opened without `out`, a folder to save to");
  EXPECT_EQ(run.Load().message(), "the run was opened without `out`; name a checkpoint");
  EXPECT_THAT(run.Export(folder_ / "a.txt").message(), HasSubstr("ends in .gyre"));
  EXPECT_FALSE(run.Export(folder_ / "no/a.gyre").ok());
  ASSERT_TRUE(run.Step({{"x", batch.x}, {"class", batch.classes}}).ok());
  EXPECT_EQ(within.message(), "another call with this handle is under way");
  // A label beyond the net's classes spoils the weights, until a checkpoint is loaded.
  batch.classes[3] = 2;
  const Status bad = run.Step({{"x", batch.x}, {"class", batch.classes}});
  EXPECT_EQ(bad.code(), GYRE_INVALID_ARGUMENT);
  EXPECT_THAT(bad.message(), HasSubstr("sample 3"));
  batch.classes[3] = 1;
  const Status after = run.Step({{"x", batch.x}, {"class", batch.classes}});
  EXPECT_EQ(after.code(), GYRE_FAILED_PRECONDITION);
  EXPECT_THAT(after.message(), StartsWith("load a checkpoint first, because a call has failed"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace gyre
