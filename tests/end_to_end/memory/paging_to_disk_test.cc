// What can go wrong with pages on disk: one clear error, and the last checkpoint stands.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <regex>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/bad_input.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

const SyntheticData kData{.samples = 56};

// Nearly all of it is in fc, which a step touches whole.
constexpr char kNet[] = R"(
  name: "net"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 300 } }
  layer { name: "relu" relu {} }
  layer { name: "fc2" dense { outputs: 300 } }
  layer { name: "relu2" relu {} }
  layer { name: "fc3" dense { outputs: 10 } }
  layer { name: "loss" input: "fc3" input: "label" softmax_cross_entropy {} })";

class PagingToDisk : public testing::Test {
 protected:
  PagingToDisk() : folder_(kData) {
    WriteTrainer(folder_ / "", kNet,
                 {.optimizer = "adam {}",
                  .rest = "batch: 6 evaluate_every: 1000000 checkpoint_every: 1000000 steps: 4"});
    device_memory_ = NumberIn(folder_.Train("refused", OnSim(1)).err, kLeastDeviceMemory);
  }

  // With as little device memory as possible, and pages in the least host memory.
  std::vector<std::string> OnDisk(const std::vector<std::string>& more = {}) const {
    return OnSim(device_memory_, Joined(more, {"--host_memory=32K"}));
  }

  // What refuses a run that goes on from the checkpoint of step 4 in `out`.
  void ExpectRefusal(const std::vector<std::string>& arguments, const std::string& message) {
    const ToolResult result = folder_.Train("out", arguments);
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    ExpectMessage(result, message);
    EXPECT_EQ(folder_.NewestCheckpoint("out"), 4);
  }

  const TrainingFolder folder_;
  int64_t device_memory_ = 0;
};

TEST_F(PagingToDisk, IsRefusedInOneLineWhereItCannotBe) {
  folder_.Digest("out", OnDisk());
  const std::vector<std::string> resume = {"--resume=latest", "--steps=6"};
  const auto with = [&](const std::string& flag) { return Joined(resume, {flag}); };
  ExpectRefusal(OnDisk(with("--page_folder=" + folder_ / "none")),
                absl::StrCat("pages on disk: cannot make a file in ", folder_ / "none",
                             ": No such file or directory"));
  // Nobody may, not even root.
  ExpectRefusal(OnDisk(with("--page_folder=/proc/self")),
                "pages on disk: cannot make a file in /proc/self: ...");
  ExpectRefusal(OnSim(device_memory_, with("--host_memory=1000")),
                "host memory: expected at least 32768 bytes (32.0 KiB) for copies from and to the "
                "disk and what cannot lie there, got 1000 bytes; give more --host_memory");

  // A limit on the size of files stands for a full disk.
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {100'000, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);  // the tool inherits it
  ExpectRefusal(OnDisk(resume), "pages on disk: cannot reserve ...");
  setrlimit(RLIMIT_FSIZE, &limit);

  EXPECT_EQ(folder_.Digest("out", OnDisk(resume)),
            folder_.Digest("resident", OnSim(int64_t{1} << 30, {"--steps=6"})));
}

TEST_F(PagingToDisk, EvaluatesTheSame) {
  folder_.Digest("out", OnDisk());
  const std::string weights = folder_ / "out";
  const std::string expected = folder_.Evaluate(weights);
  const int64_t least =
      NumberIn(RunTool("evaluate", {"--trainer=" + folder_ / "trainer.textproto",
                                    "--weights=" + weights, "--device=sim", "--device_memory=1"})
                   .err,
               kLeastDeviceMemory);
  EXPECT_EQ(folder_.Evaluate(weights, {"--device=sim", absl::StrCat("--device_memory=", least),
                                       "--host_memory=32K", "--page_folder=" + folder_ / ""}),
            expected);
}

// The page file of a process; "" if it has none.
std::string PageFileOf(pid_t process, const std::string& folder) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(absl::StrCat("/proc/", process, "/fd"), gone)) {
    const std::string path = fs::read_symlink(entry.path(), gone).string();
    if (!gone && path.starts_with(folder) && path.ends_with("(deleted)")) return entry.path();
  }
  return "";
}

TEST_F(PagingToDisk, AFlippedBitEndsTheRunAndLeavesTheCheckpoint) {
  const std::string folder = fs::canonical(folder_ / "");
  Tool run("train", folder_.TrainArguments("out", OnDisk({"--steps=1000000"})));
  folder_.AwaitMetrics(run, "out");
  run.Signal(SIGUSR1);
  folder_.AwaitCheckpoint(run, "out", 1);
  ASSERT_TRUE(run.Running()) << run.Wait().ToString();
  const int fd = open(PageFileOf(run.Pid(), folder).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0) << "no page file in " << folder;
  constexpr off_t kSector = 4096;
  // Again and again: what is written before it is read heals.
  while (run.Running()) {
    char byte = 0;
    for (off_t at = 0; run.Running() && pread(fd, &byte, 1, at) == 1; at += kSector) {
      byte = static_cast<char>(byte ^ 1);
      if (pwrite(fd, &byte, 1, at) != 1) break;
    }
  }
  close(fd);
  const ToolResult result = run.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const int64_t saved = folder_.NewestCheckpoint("out");
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex(absl::StrCat(
                      "^error: step [0-9]+: [^:]+: pages on disk: the file in [^ ]+ has other "
                      "bytes from [0-9]+ on than were written there .*; the checkpoint of step ",
                      saved, " stands\n$"))))
      << result.ToString();
  const std::string steps = absl::StrCat("--steps=", saved);
  EXPECT_EQ(folder_.Digest("out", OnDisk({"--resume=latest", steps})),
            folder_.Digest("resident", OnSim(int64_t{1} << 30, {steps})));
}

}  // namespace
}  // namespace gyre
