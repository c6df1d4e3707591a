// A world that does not play along: a full disk, a reader or a folder that goes away, descriptors
// that are closed, weights that differ; and what an earlier run left behind.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/bad_input.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// A limit on the size of files stands for a full disk: state.pb fits, the weights do not.
TEST(Train, ADiskThatIsFullLeavesTheOldCheckpoint) {
  const GoodFolder folder;
  const std::string before = ReadBytes(folder / "run/checkpoints/step_00000004/state.pb");
  constexpr rlim_t kMostBytes = 1800;  // the weights take 1900 and a header
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {kMostBytes, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);  // the tool inherits it
  const ToolResult result = folder.Run("train", {"--out=@/run", "--resume=latest", "--steps=6"});
  setrlimit(RLIMIT_FSIZE, &limit);

  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  ExpectMessage(result,
                absl::StrCat("cannot write ", folder / "run/checkpoints/.step_00000005..."));
  EXPECT_NE(result.err.find("weights.safetensors: File too large"), std::string::npos);
  EXPECT_EQ(ReadBytes(folder / "run/checkpoints/step_00000004/state.pb"), before);
  for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints")) {
    EXPECT_EQ(entry.path().filename().string().find("step_"), 0u) << entry.path();
  }
}

struct Shelled {
  int exit_code;
  std::string err;
};

// Runs a tool of the good folder by a shell, with its own words for descriptors in `redirect`.
Shelled Shell(const std::string& folder, const std::string& tool, const std::string& arguments,
              const std::string& redirect) {
  const int status = std::system(absl::StrReplaceAll(absl::StrCat("exec 2>@/err; exec tools/", tool,
                                                                  " ", arguments, " ", redirect),
                                                     {{"@", folder}})
                                     .c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          ReadBytes(folder + "/err")};
}

TEST(Tools, SayThatTheirOutputIsLost) {
  const GoodFolder folder;
  const struct {
    const char *tool, *arguments;
  } kRuns[] = {{"train", "--trainer=@/trainer.textproto --out=@/out"},
               {"evaluate", "--trainer=@/trainer.textproto --weights=@/run"},
               {"export", "--weights=@/run --to=@/a.npz"},
               {"train", "--help"}};
  for (const auto& run : kRuns) {
    const Shelled result = Shell(folder.path(), run.tool, run.arguments, ">/dev/full");
    EXPECT_EQ(result.exit_code, 1) << run.tool;
    EXPECT_EQ(result.err, "error: cannot write standard output: No space left on device\n");
  }
}

// Else the first files opened would be taken for standard output and error.
TEST(Tools, ClosedDescriptorsAreNotGivenToFiles) {
  const GoodFolder folder;
  const Shelled result =
      Shell(folder.path(), "train", "--trainer=@/trainer.textproto --out=@/out", "<&- >&- 2>&-");
  EXPECT_EQ(result.exit_code, 1);  // the digest is lost
  const std::string metrics = ReadBytes(folder / "out/metrics.jsonl");
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 5) << metrics;  // 4 steps, 1 test
  EXPECT_EQ(metrics.find("\n{") == std::string::npos, false);
  for (const auto line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
    EXPECT_TRUE(line[0] == '{' && line.back() == '}') << line;
  }
}

TEST(Evaluate, NamesWeightsThatTheNetLacks) {
  const GoodFolder folder;
  const auto weights =
      *TensorFile::Read(folder / "run/checkpoints/step_00000004/weights.safetensors");
  std::vector<NamedTensor> tensors = weights.tensors();
  tensors.push_back({"head.bias", tensors[0].tensor});
  ASSERT_TRUE(WriteSafetensors(folder / "more.safetensors", tensors).ok());
  const std::string warning = absl::StrCat("warning: ", folder / "more.safetensors",
                                           ": the net has no parameter for \"head.bias\"\n");
  const ToolResult evaluate = Succeeded(folder.Run("evaluate", {"--weights=@/more.safetensors"}));
  EXPECT_EQ(Unwrapped(evaluate.err), warning);
}

TEST(Evaluate, RefusesOtherWeightsOnARank) {
  const GoodFolder folder;
  const ToolResult result = folder.Run("evaluate",
                                       {"--weights=@/run/checkpoints/step_00000002", ":",
                                        "--weights=@/run/checkpoints/step_00000004"},
                                       {.ranks = 2});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_NE(result.err.find("error: the weights: rank 2 is the first that differs"),
            std::string::npos)
      << result.err;
}

// The last rank cannot write in its folder, so what the others' has does not come there.
TEST(Train, AllRanksGoOnOrBegin) {
  const GoodFolder folder;
  fs::create_directory(folder / "other");
  WriteBytes(folder / "other/run", "");
  const ToolResult result = folder.Run(
      "train",
      {"--resume=auto", "--steps=6", "--out=run", ":", "--resume=auto", "--steps=6", "--out=run"},
      {.ranks = 2, .folder = folder.path(), .other_folder = folder / "other"});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_NE(result.err.find("error: whether there is a checkpoint to resume from: rank 2 is the "
                            "first that differs"),
            std::string::npos)
      << result.err;
}

// A new run beside an earlier one's metrics.
TEST(Train, KeepsAnEarlierRunsMetrics) {
  const GoodFolder folder;
  fs::remove_all(folder / "run/checkpoints");
  const std::string before = ReadBytes(folder / "run/metrics.jsonl");
  for (const char* kept : {"metrics.1.jsonl", "metrics.2.jsonl"}) {
    fs::remove_all(folder / "run/checkpoints");
    const ToolResult result = Succeeded(folder.Run("train", {"--out=@/run"}));
    EXPECT_NE(result.out.find(absl::StrCat("the metrics of an earlier run are now in ",
                                           folder / "run/" + kept)),
              std::string::npos)
        << result.out;
  }
  EXPECT_EQ(ReadBytes(folder / "run/metrics.1.jsonl"), before);
}

TEST(Train, AnOldCheckpointThatCannotBeDeletedStays) {
  const GoodFolder folder;
  // Its name leaves no room for that of what is about to be removed.
  const std::string old = "run/checkpoints/step_" + std::string(249, '0') + "1";
  fs::create_directory(folder / old);
  const ToolResult result = Succeeded(folder.Run(
      "train", {"--out=@/run", "--resume=latest", "--steps=6", "--set=keep_checkpoints=1"}));
  EXPECT_NE(result.out.find("warning: an old checkpoint stays: cannot remove"), std::string::npos)
      << result.ToString();
  EXPECT_TRUE(fs::exists(folder / old));
}

TEST(Train, AnOutputFolderThatGoesAwayIsAnError) {
  const GoodFolder folder;
  Tool tool("train", {"--trainer=" + folder / "trainer.textproto", "--out=" + folder / "out",
                      "--steps=1000000", "--checkpoint_every=1000000"});
  tool.Await([&] { return fs::exists(folder / "out/metrics.jsonl"); });
  tool.Signal(SIGUSR1);
  tool.Await([&] { return absl::StrContains(tool.Out(), "checkpoint of step "); });
  fs::rename(folder / "out", folder / "moved");
  tool.Signal(SIGUSR1);
  const ToolResult result = tool.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  ExpectMessage(
      result,
      absl::StrCat(
          folder / "out/metrics.jsonl",
          " was removed or replaced while training; its lines are lost; the checkpoint of..."));
}

// train | head -1
TEST(Train, AReaderThatGoesAwayStopsItWithACheckpoint) {
  const GoodFolder folder;
  const std::string command = absl::StrCat(
      "exec tools/train --trainer=", folder / "trainer.textproto",
      " --steps=1000000 --checkpoint_every=1000000 --out=", folder / "out", " 2>", folder / "err");
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[256];
  ASSERT_NE(std::fgets(line, sizeof(line), pipe), nullptr);
  EXPECT_EQ(std::string(line).find("training tiny: "), 0u) << line;
  const int status = pclose(pipe);
  EXPECT_EQ(WEXITSTATUS(status), 130) << status;
  EXPECT_EQ(ReadBytes(folder / "err").find("stopped after step "), 0u) << ReadBytes(folder / "err");
}

}  // namespace
}  // namespace gyre
