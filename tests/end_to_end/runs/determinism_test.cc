// Theorems: the same command twice makes the same bits; a device with memory of its own makes the
// bits of the CPU.

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

const SyntheticData kData{.samples = 50};
constexpr int64_t kTestSamples = 60;
constexpr char kLength[] = "batch: 8 test_batch: 5 steps: 15 distributed { bucket_bytes: 2000 }";

struct Case {
  const char* name;
  std::string (*net)(const SyntheticData&);
  const char* optimizer;
  const char* more = "";
};

class Determinism : public testing::TestWithParam<Case> {
 protected:
  Determinism() {
    WriteTrainer(
        folder_ / "", GetParam().net(kData),
        {.optimizer = GetParam().optimizer, .rest = absl::StrCat(kLength, GetParam().more)});
  }
  TrainingFolder folder_{kData, kTestSamples};
};

INSTANTIATE_TEST_SUITE_P(
    , Determinism,
    testing::Values(Case{"ConvSgd", ConvNetText, "sgd { momentum: 0.9 } weight_decay: 0.001"},
                    Case{"ConvAdamAccumulated", ConvNetText, "adam {} clip_norm: 0.5",
                         " accumulate: 3"},
                    Case{"MlpNesterov", MlpNetText, "sgd { momentum: 0.8 nesterov: true }"},
                    Case{"MlpAdam", MlpNetText, "adam {}"}),
    [](const auto& info) { return info.param.name; });

TEST_P(Determinism, SameCommandSameBits) {
  std::set<std::string> digests;
  for (int ranks : {1, 2}) {
    const auto run = [&](const char* out, const std::vector<std::string>& more) {
      const std::string name = absl::StrCat(out, ranks);
      const std::string digest = folder_.Digest(name, more, {.ranks = ranks});
      return std::pair(digest, folder_.MetricLines(name));
    };
    const auto first = run("first", {});
    EXPECT_EQ(run("second", {}), first) << ranks << " ranks";
    EXPECT_EQ(run("sim", {"--device=sim"}), first) << ranks << " ranks";
    digests.insert(first.first);
  }
  // The digest sees what matters: else equality would prove nothing.
  digests.insert(folder_.Digest("other_seed", {"--seed=2"}));
  digests.insert(folder_.Digest("longer", {"--steps=16"}));
  digests.insert(folder_.Digest("no_dropout", {"--set=net.layer.drop.dropout.rate=0"}));
  EXPECT_EQ(digests.size(), 5);
}

// Vendor libraries split large images over threads.
TEST(Threads, SameCommandSameBits) {
  SyntheticData data{.samples = 40, .height = 28, .width = 28};
  const TrainingFolder folder(data);
  WriteTrainer(folder / "", ConvNetText(data), {.rest = "batch: 32 steps: 5"});
  const std::string first = folder.Digest("first", {"--threads=2"});
  EXPECT_EQ(folder.Digest("second", {"--threads=2"}), first);
  EXPECT_EQ(folder.Digest("sim", {"--threads=2", "--device=sim"}), first);
}

// How OpenMP's threads wait, as libgomp tells when a program starts; the last start counts.
TEST(Threads, WaitAsideUnlessTheUserChooses) {
  const auto waiting = [](const std::string& policy, const std::string& spins,
                          const std::string& bind = "") -> std::string {
    const ToolResult result = Succeeded(RunTool("train", {"--help"},
                                                {.env = {{"OMP_DISPLAY_ENV", "VERBOSE"},
                                                         {"OMP_WAIT_POLICY", policy},
                                                         {"GOMP_SPINCOUNT", spins},
                                                         {"OMP_PROC_BIND", bind}}}));
    const size_t line = result.err.rfind("GOMP_SPINCOUNT = ");
    if (line == std::string::npos) return result.err;
    return result.err.substr(line, result.err.find('\n', line) - line);
  };
  EXPECT_EQ(waiting("", ""), "GOMP_SPINCOUNT = '6000'");
  EXPECT_EQ(waiting("passive", ""), "GOMP_SPINCOUNT = '0'");
  EXPECT_EQ(waiting("", "77"), "GOMP_SPINCOUNT = '77'");
  // Started anew it would stay on the core to which its first thread is bound.
  EXPECT_NE(waiting("", "", "true"), "GOMP_SPINCOUNT = '6000'");
}

}  // namespace
}  // namespace gyre
