// Runs whose activations leave the device and come back in 16 bits: the same bits again, straight,
// rerun and resumed, close to those of runs that the device can hold, for about half the bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

const SyntheticData kData{.samples = 64};
constexpr char kLength[] = "batch: 16 evaluate_every: 8 checkpoint_every: 5 steps: 16";

// Of which activations are most.
constexpr char kConvolutions[] = R"(
  name: "convolutions"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "conv1" conv2d { filters: 16 kernel: 5 padding: 2 } }
  layer { name: "norm1" batch_norm {} }
  layer { name: "relu1" relu {} }
  layer { name: "conv2" conv2d { filters: 16 kernel: 3 padding: 1 } }
  layer { name: "tanh2" tanh {} }
  layer { name: "pool2" pool2d { kind: MAX kernel: 2 stride: 2 } }
  layer { name: "conv3" conv2d { filters: 32 kernel: 3 padding: 1 } }
  layer { name: "relu3" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 10 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

class RoundedPages : public testing::TestWithParam<const char*> {
 protected:
  RoundedPages() {
    WriteTrainer(folder_ / "", kConvolutions, {.optimizer = "sgd {}", .rest = kLength});
    least_ = NumberIn(folder_.Train("refused", OnSim(1, Half())).err, kLeastDeviceMemory);
  }

  static std::vector<std::string> Half(const std::vector<std::string>& more = {}) {
    return Joined(more, {absl::StrCat("--page_activations=", GetParam())});
  }

  const TrainingFolder folder_{kData};
  int64_t least_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, RoundedPages, testing::Values("BF16", "F16"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(RoundedPages, SameBitsAgainAndCloseToResident) {
  const int64_t all = int64_t{1} << 30;
  const std::string resident = folder_.Digest("resident", OnSim(all));
  EXPECT_EQ(folder_.Digest("fits", OnSim(all, Half())), resident);
  EXPECT_EQ(folder_.Digest("wide", OnSim(least_)), resident);

  const std::string rounded = folder_.Digest("rounded", OnSim(least_, Half()));
  EXPECT_NE(rounded, resident);
  EXPECT_EQ(folder_.Digest("again", OnSim(least_, Half())), rounded);
  // A maximum that turns moves losses by 1e-3.
  EXPECT_THAT(LargestRelativeDifference(folder_.Metrics("rounded", "loss"),
                                        folder_.Metrics("resident", "loss")),
              Lt(0.03));

  folder_.Digest("parted", OnSim(least_, Half({"--steps=7"})));
  const ToolResult resumed =
      folder_.Train("parted", OnSim(least_, Half({"--resume=latest", "--steps=16"})));
  EXPECT_EQ(DigestOf(resumed), rounded);
  EXPECT_THAT(resumed.out, Not(HasSubstr("pages of 16 bits")));
}

TEST_P(RoundedPages, OtherMemoryIsSaid) {
  folder_.Digest("run", OnSim(least_, Half({"--steps=3"})));
  const auto resume = [&](int64_t bytes, int steps, const std::vector<std::string>& more) {
    return folder_.Train(
        "run", OnSim(bytes, Joined(more, {"--resume=latest", absl::StrCat("--steps=", steps)})));
  };
  const std::string warning = "warning: resumed with ", pages = "pages of 16 bits: ";
  EXPECT_THAT(resume(least_, 4, Half()).out, Not(HasSubstr(pages)));
  EXPECT_THAT(resume(int64_t{1} << 30, 5, Half()).out, HasSubstr(warning + "no " + pages));
  EXPECT_THAT(resume(least_, 6, Half()).out, HasSubstr(warning + "other " + pages));
  EXPECT_THAT(resume(least_, 7, {}).out, HasSubstr("page_activations"));
}

TEST_P(RoundedPages, MoveAboutHalfTheBytes) {
  const auto moved = [&](const std::string& out, const std::vector<std::string>& more) {
    folder_.Digest(out, OnSim(least_, more));
    return folder_.Metrics(out, "fetched_bytes").at(0) +
           folder_.Metrics(out, "written_bytes").at(0);
  };
  EXPECT_THAT(moved("half", Half()), Lt(moved("whole", {})));
  const ToolResult plan = folder_.Train("plan", OnSim(least_, Half({"--plan", "--verbose"})));
  EXPECT_THAT(plan.out, HasSubstr("activations travel in 16 bits, through "));
  EXPECT_THAT(folder_.Train("plan", OnSim(least_, {"--plan", "--verbose"})).out,
              Not(HasSubstr("travel in 16 bits")));
}

// Half of the host memory that pages take, or less: the rest is on disk, in 16 bits, too.
TEST_P(RoundedPages, ToDisk) {
  const auto on_disk = [&](const std::vector<std::string>& more) {
    return OnSim(least_, Half(Joined(more, {"--host_memory=256K"})));
  };
  const std::string rounded = folder_.Digest("rounded", on_disk({}));
  EXPECT_EQ(folder_.Digest("again", on_disk({})), rounded);
  EXPECT_THAT(folder_.Train("plan", on_disk({"--plan", "--verbose"})).out, HasSubstr("it reads "));
  folder_.Digest("parted", on_disk({"--steps=7"}));
  EXPECT_EQ(folder_.Digest("parted", on_disk({"--resume=latest"})), rounded);
}

}  // namespace
}  // namespace gyre
