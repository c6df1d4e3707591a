// Theorem: a run that was interrupted and resumed makes the bits of one that was not, whatever the
// interruption was.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/folder_lock.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const SyntheticData kData{.samples = 50};
// The schedule, momentum, clipping, dropout and an epoch that the batch does not divide all depend
// on what a checkpoint must hold.
constexpr int64_t kSteps = 120;
const TrainerText kTrainer = {
    .optimizer = "sgd { momentum: 0.9 } clip_norm: 1",
    .learning_rate = "base: 0.05 warmup_steps: 30 cosine {}",
    .rest = absl::StrCat("batch: 8 evaluate_every: 7 checkpoint_every: 1000 steps: ", kSteps)};
const char* const kFiles[] = {"weights.safetensors", "optimizer.safetensors", "state.pb"};

std::string StepName(int64_t step) { return absl::StrFormat("step_%08d", step); }

class Resume : public testing::Test {
 protected:
  Resume() { WriteTrainer(folder_ / "", ConvNetText(kData), kTrainer); }

  void ExpectStraight(const std::string& out, const std::string& straight) {
    EXPECT_EQ(folder_.MetricLines(out), folder_.MetricLines(straight));
    EXPECT_EQ(folder_.Metrics(out, "loss").size(), kSteps);  // and each step once
  }

  TrainingFolder folder_{kData};
  std::mt19937_64 random_{20240607};
};

TEST_F(Resume, KilledAnywhere) {
  for (const char* optimizer :
       {"sgd { momentum: 0.9 } clip_norm: 1", "adam {} ema { decay: 0.9 }"}) {
    TrainerText trainer = kTrainer;
    trainer.optimizer = optimizer;
    WriteTrainer(folder_ / "", ConvNetText(kData), trainer);
    const std::string name = optimizer;
    const std::string straight = folder_.Digest(name, {});
    for (int64_t every : {1, 3}) {
      const std::string out = absl::StrCat(name, every);
      std::vector<std::string> arguments = {absl::StrCat("--checkpoint_every=", every)};
      int killed = 0;
      for (int64_t third = 0; third < 2; ++third) {  // two kills, then to the end
        const int64_t step = third * kSteps / 3 + 1 + static_cast<int64_t>(random_() % 20);
        Tool tool("train", folder_.TrainArguments(out, arguments));
        ASSERT_TRUE(folder_.AwaitCheckpoint(tool, out, step)) << tool.Wait().ToString();
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 10000));
        tool.Signal(SIGKILL);
        killed += tool.Wait().exit_code == 128 + SIGKILL;
        if (third == 0) arguments.push_back("--resume=latest");
      }
      EXPECT_GT(killed, 0);
      EXPECT_EQ(folder_.Digest(out, arguments), straight);
      ExpectStraight(out, name);
    }
  }
}

// What a run saves in its last moments is seen by the one that waits for it.
TEST_F(Resume, WaitsForARunThatEndsAndSeesItsCheckpoint) {
  folder_.Digest("ended", {"--steps=10"});
  folder_.Digest("older", {"--steps=5"});
  for (const bool resumes : {false, true}) {
    const std::string out = resumes ? "resumed" : "new";
    fs::create_directories(folder_ / out);
    if (resumes) fs::copy(folder_ / "older", folder_ / out, fs::copy_options::recursive);
    std::optional lock = *FolderLock::Take(folder_ / out);
    Tool tool("train",
              folder_.TrainArguments(out, {resumes ? "--resume=latest" : "--checkpoint_every=9"}));
    // By then it has looked for what to resume from, and is about to wait.
    ASSERT_TRUE(tool.Await([&] {
      return resumes ? absl::StrContains(tool.Out(), "resumed at step 5")
                     : fs::exists(folder_ / (out + "/checkpoints"));
    })) << tool.Wait().ToString();
    const std::string last = "/checkpoints/" + StepName(10);
    fs::copy(folder_ / ("ended" + last), folder_ / (out + last));
    lock.reset();
    const ToolResult result = tool.Wait();
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr(resumes ? "another run has just saved step 10 there"
                                              : "already holds checkpoints"));
  }
}

// mpirun passes a signal on to all ranks, and kills a little later; one rank that gets it alone
// stops the others as well.
TEST_F(Resume, StoppedBySignal) {
  TrainerText trainer = kTrainer;
  trainer.learning_rate = "base: 0.05 warmup_steps: 30";  // whatever the number of steps
  WriteTrainer(folder_ / "", ConvNetText(kData), trainer);
  const auto until = [](int64_t step, const std::string& flag) {
    return std::vector<std::string>{absl::StrCat("--steps=", step), "--set=evaluate_every=1500",
                                    flag};
  };
  struct Stop {
    int ranks, signal, exit_code;
    bool one_rank;
  };
  // mpirun has an exit code of its own for having been stopped, but reports that of a rank.
  for (const Stop& stop :
       {Stop{1, SIGTERM, 130, false}, Stop{2, SIGTERM, 1, false}, Stop{2, SIGTERM, 130, true}}) {
    const std::string out = absl::StrCat(stop.ranks, "by", stop.signal, "of", stop.one_rank);
    // Seldom saved at the step where the signal comes.
    Tool tool("train", folder_.TrainArguments(out, until(1'000'000, "--checkpoint_every=7")),
              {.ranks = stop.ranks, .env = {{"OMPI_MCA_odls_base_sigkill_timeout", "3"}}});
    ASSERT_TRUE(folder_.AwaitCheckpoint(tool, out, 7)) << tool.Wait().ToString();
    if (stop.one_rank) {
      ASSERT_EQ(kill(tool.PidOfRank(1), stop.signal), 0);
    } else {
      tool.Signal(stop.signal);
    }
    const ToolResult result = tool.Wait();
    const int64_t step = folder_.NewestCheckpoint(out);
    EXPECT_EQ(result.exit_code, stop.exit_code) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("stopped after step ", step,
                                                   "; go on with --resume=latest")));
    EXPECT_EQ(result.err.find("--mca odls_base_sigkill_timeout 30") != std::string::npos,
              stop.ranks > 1 && !stop.one_rank)
        << result.err;
    const std::string straight = out + "straight";
    EXPECT_EQ(folder_.Digest(out, until(step + 9, "--resume=latest"), {.ranks = stop.ranks}),
              folder_.Digest(straight, until(step + 9, "--checkpoint_every=1000000"),
                             {.ranks = stop.ranks}));
    EXPECT_EQ(folder_.MetricLines(out), folder_.MetricLines(straight));
  }
}

// Of terminals, and what batch systems and limits warn with, some of it again and again.
TEST_F(Resume, OtherSignalsStopWithACheckpoint) {
  for (const int signal : {SIGINT, SIGHUP, SIGUSR2, SIGXCPU, SIGQUIT, SIGALRM, SIGPWR}) {
    const std::string out = absl::StrCat("by", signal);
    Tool tool("train", folder_.TrainArguments(out, {"--steps=1000000", "--checkpoint_every=7"}));
    ASSERT_TRUE(folder_.AwaitCheckpoint(tool, out, 7)) << tool.Wait().ToString();
    tool.Signal(signal);
    while (signal == SIGXCPU && tool.Running()) tool.Signal(signal);  // it comes again
    const ToolResult result = tool.Wait();
    EXPECT_EQ(result.exit_code, 130) << result.ToString();
    EXPECT_THAT(result.err,
                HasSubstr(absl::StrCat("stopped after step ", folder_.NewestCheckpoint(out),
                                       "; go on with --resume=latest")));
  }
}

// SIGUSR1, which mpirun passes on without killing anybody afterwards.
TEST_F(Resume, ASignalAsksForACheckpoint) {
  Tool tool("train",
            folder_.TrainArguments("asked", {"--steps=1000000", "--checkpoint_every=1000000"}),
            {.ranks = 2});
  folder_.AwaitMetrics(tool, "asked");
  tool.Signal(SIGUSR1);
  ASSERT_TRUE(folder_.AwaitCheckpoint(tool, "asked", 1)) << tool.Wait().ToString();
  const int64_t first = folder_.NewestCheckpoint("asked");
  EXPECT_TRUE(tool.Running());
  tool.Signal(SIGUSR1);
  ASSERT_TRUE(folder_.AwaitCheckpoint(tool, "asked", first + 1)) << tool.Wait().ToString();
}

// A handler on a computing thread's stack would overwrite what a matrix product keeps there.
TEST(Signals, DoNotDisturbAProduct) {
  const SyntheticData data{.samples = 256, .height = 28, .width = 28};
  const TrainingFolder folder(data, /*test_samples=*/2000);
  WriteTrainer(folder / "", MlpNetText(data),
               {.rest = "batch: 64 steps: 20 evaluate_every: 1 test_batch: 500"});
  const std::vector<std::string> wide = {"--set=net.layer.fc1.dense.outputs=256",
                                         "--checkpoint_every=1000", "--set=keep_checkpoints=1"};
  const std::string digest = folder.Digest("left_alone", wide);
  Tool tool("train", folder.TrainArguments("disturbed", wide));
  folder.AwaitMetrics(tool, "disturbed");
  while (tool.Running()) {
    tool.Signal(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(DigestOf(tool.Wait()), digest);
  EXPECT_EQ(folder.Metrics("disturbed", "test_loss"), folder.Metrics("left_alone", "test_loss"));
}

// However few of them are others.
TEST_F(Resume, ChangedDataIsNoticed) {
  const SyntheticData data{.samples = 2000, .height = 8, .width = 8};
  const TrainingFolder folder(data);
  WriteTrainer(folder / "", MlpNetText(data), kTrainer);
  folder.Digest("out", {"--steps=10"});
  const std::string path = folder / "train-labels.idx";
  std::string labels = ReadBytes(path);
  for (const size_t sample : {1, 1999}) {
    char& label = labels[8 + sample];
    label = label == 0 ? 1 : 0;
  }
  for (const bool changed : {false, true}) {
    if (changed) WriteBytes(path, labels);
    const ToolResult result = Succeeded(
        folder.Train("out", {absl::StrCat("--steps=", changed ? 14 : 12), "--resume=latest"}));
    EXPECT_EQ(absl::StrContains(result.out, "warning: resumed with other training data: "),
              changed);
  }
}

// As a batch system starts the same command again.
TEST_F(Resume, AutoBeginsOrGoesOn) {
  for (const int ranks : {1, 2}) {
    const std::string out = absl::StrCat("auto", ranks);
    const auto run = [&](const std::string& flag) {
      return folder_.Train(out, {"--resume=auto", flag}, {.ranks = ranks});
    };
    EXPECT_THAT(Succeeded(run("--steps=10")).out, Not(HasSubstr("resumed")));
    const ToolResult second = run("--steps=120");
    EXPECT_THAT(second.out, HasSubstr("resumed at step 10 "));
    EXPECT_NE(DigestOf(second), "");
    // One that has ended has nothing left to do.
    EXPECT_EQ(DigestOf(run("--steps=120")), DigestOf(second));
    for (const auto& step : fs::directory_iterator(folder_ / out + "/checkpoints")) {
      WriteBytes(step.path() / "state.pb", "nothing");
    }
    EXPECT_THAT(run("--steps=120").err, HasSubstr("is broken"));
  }
}

// It begins from weights, and goes on without them.
TEST_F(Resume, AutoTakesWeightsToBeginWith) {
  const std::string base = folder_.Digest("base", {"--steps=1"});
  const std::vector<std::string> arguments = {"--resume=auto", "--weights=" + folder_ / "base",
                                              "--set=learning_rate.base=0.001"};
  const auto run = [&](const std::string& out, const std::string& steps) {
    return folder_.Train(out, Joined(arguments, {steps}));
  };
  EXPECT_THAT(run("out", "--steps=40").out, HasSubstr("weights matched"));
  fs::remove_all(folder_ / "base");
  EXPECT_THAT(Succeeded(run("out", "--steps=50")).out, HasSubstr("resumed at step 40 "));
}

// An error comes without warnings.  What the checkpoint records of choices as digests is told in
// words.
TEST_F(Resume, SaysWhatHasChanged) {
  folder_.Digest("out", {"--steps=10"});
  const auto resume = [&](std::vector<std::string> more) {
    more.push_back("--resume=latest");
    return folder_.Train("out", more);
  };
  const ToolResult beyond = resume({"--steps=5", "--threads=2"});
  EXPECT_EQ(beyond.exit_code, 1) << beyond.ToString();
  EXPECT_EQ(beyond.out, "");
  EXPECT_THAT(beyond.err, HasSubstr("is beyond the end of this run, steps: 5;"));

  const std::vector<std::string> trainer = {"--batch=4", "--set=accumulate=2"};
  const ToolResult changed = Succeeded(resume({"--steps=12", trainer[0], trainer[1]}));
  EXPECT_THAT(changed.out, HasSubstr("warning: the trainer has changed since the checkpoint: "
                                     "modified: batch: 8 -> 4;\n"
                                     "  modified: steps: 10 -> 12; added: accumulate: 2\n"));

  const ToolResult threads = resume({"--steps=14", "--threads=2", trainer[0], trainer[1]});
  EXPECT_EQ(threads.exit_code, 0) << threads.ToString();
  EXPECT_THAT(threads.out, HasSubstr("2 threads in place of 1"));
  EXPECT_THAT(Unwrapped(threads.out),
              HasSubstr(": the run goes on, but not with the bits that it would have had\n"));
  const std::string warnings = threads.out.substr(0, threads.out.find("resumed at step"));
  EXPECT_THAT(warnings, Not(ContainsRegex("[0-9a-f]{16}")));
}

// A run that is killed after a checkpoint and before the test that follows it.
TEST_F(Resume, TheTestAfterACheckpointIsMadeUpFor) {
  folder_.Digest("out", {"--checkpoint_every=7", "--steps=14"});
  const std::vector<std::string> lines = folder_.MetricLines("out");
  const std::string path = folder_ / "out/metrics.jsonl", text = ReadBytes(path);
  for (const size_t cut : {text.rfind("{\"step\":14,\"test"), text.size()}) {
    WriteBytes(path, text.substr(0, cut));
    folder_.Digest("out", {"--resume=latest", "--steps=14"});
    EXPECT_EQ(folder_.MetricLines("out"), lines);
  }
}

// Steps are looked at one late, but a step that fails takes no line of those before it along.
TEST_F(Resume, AStepThatFailsLeavesTheLinesBeforeIt) {
  for (int ranks : {1, 2}) {
    const std::string out = absl::StrCat("diverges", ranks);
    const ToolResult result =
        folder_.Train(out, {"--set=learning_rate.base=1e30"}, {.ranks = ranks});
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr("step 2: a gradient is not finite"));
    EXPECT_EQ(folder_.Metrics(out, "loss").size(), 1u);
  }
}

// How a file breaks and what is said of it is checkpoint_test's.
TEST_F(Resume, ABrokenCheckpointGivesWayToTheOneBefore) {
  const std::string straight = folder_.Digest("straight");
  folder_.TrainAndKill("out", 9, {"--checkpoint_every=3"});
  const int64_t newest = folder_.NewestCheckpoint("out");
  for (const char* file : kFiles) {
    const std::string out = file;
    fs::copy(folder_ / "out", folder_ / out, fs::copy_options::recursive);
    const std::string path =
        folder_ / absl::StrCat(out, "/checkpoints/", StepName(newest), "/", file);
    std::string bytes = ReadBytes(path);
    bytes[random_() % bytes.size()] ^= static_cast<char>(1 << random_() % 8);
    WriteBytes(path, bytes);
    const ToolResult result = folder_.Train(out, {"--resume=latest"});
    EXPECT_THAT(Unwrapped(result.out + result.err), HasSubstr("warning: skipped " + path));
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("resumed at step ", newest - 3, " ")));
    EXPECT_EQ(DigestOf(result), straight);
    ExpectStraight(out, "straight");
  }
}

// A checkpoint goes on where the number of ranks has changed.
TEST_F(Resume, OnAnotherNumberOfRanks) {
  const char* const precision = "--precision=F64";
  folder_.Digest("straight", {precision, "--checkpoint_every=60"}, {.ranks = 2});
  for (int ranks : {1, 3}) {
    const std::string out = absl::StrCat("on", ranks);
    fs::copy(folder_ / "straight", folder_ / out, fs::copy_options::recursive);
    fs::remove_all(folder_ / absl::StrCat(out, "/checkpoints/", StepName(kSteps)));
    const ToolResult result = folder_.Train(out, {precision, "--resume=latest"}, {.ranks = ranks});
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    EXPECT_THAT(result.out,
                HasSubstr(ranks == 1 ? "1 rank in place of 2" : "3 ranks in place of 2"));
    EXPECT_THAT(result.out, HasSubstr("resumed at step 60 "));
    for (const char* key : {"loss", "test_loss", "test_accuracy"}) {
      EXPECT_LE(
          LargestRelativeDifference(folder_.Metrics(out, key), folder_.Metrics("straight", key)),
          1e-10)
          << key;
    }
    EXPECT_EQ(folder_.Metrics(out, "loss").size(), kSteps);
  }
}

}  // namespace
}  // namespace gyre
