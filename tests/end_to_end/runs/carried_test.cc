// Sequences that go on from batch to batch: the same run again, with tests in between, and
// interrupted in the middle of an epoch, on any ranks, with several batches a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;

// Steps of 6 are over 9 samples of each piece; 2 samples are left, and 3 of the test.
const SyntheticData kData{.samples = 56};
constexpr int64_t kTestSamples = 15;

constexpr char kNet[] = R"(
  name: "carried"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "rows" reshape { dims: [12, 12] } }
  layer { name: "rnn" rnn { hidden: 6 carry: true } }
  layer { name: "lstm" lstm { hidden: 5 carry: true } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 10 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

class CarriedRun : public testing::Test {
 protected:
  CarriedRun() { WriteTrainer(folder_ / "", kNet, {.rest = "batch: 6 steps: 31"}); }

  std::vector<std::string> With(const std::vector<std::string>& more) {
    return Joined(more, {"--set=data.order=CONTIGUOUS"});
  }
  std::string Digest(const std::string& out, const std::vector<std::string>& more = {},
                     int ranks = 1) {
    std::vector<std::string> all = With(more);
    if (ranks > 1) all.push_back(absl::StrCat("--ranks=", ranks));  // threads of one process
    return folder_.Digest(out, all);
  }

  const TrainingFolder folder_{kData, kTestSamples};
};

TEST_F(CarriedRun, IsTheSameAgain) {
  const std::string expected = Digest("once");
  EXPECT_EQ(Digest("again"), expected);
  EXPECT_EQ(Digest("sim", {"--device=sim"}), expected);
  // A test leaves training's rows as they are, and its own are zero at first.
  EXPECT_EQ(Digest("tested", {"--set=evaluate_every=4"}), expected);
  EXPECT_EQ(folder_.Evaluate(folder_ / "tested", With({})),
            absl::StrFormat("test loss %.6f\n", folder_.Metrics("tested", "test_loss").back()));
  EXPECT_NE(Digest("forgets", {"--set=net.layer.rnn.rnn.carry=false"}), expected);
}

// On the same ranks the same bits; on others the same sequences go on.
TEST_F(CarriedRun, ResumesInTheMiddleOfAnEpoch) {
  Digest("one", {"--precision=F64"});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--batch=3", "--set=accumulate=2", "--set=test_batch=6"}}) {
    for (const int before : {1, 3}) {
      for (const int after : {1, 2, 3}) {
        const std::string out = absl::StrCat(before, "to", after, "of", more.size());
        const std::vector<std::string> all = Joined(more, {"--precision=F64"});
        Digest(out, Joined(all, {"--steps=13"}), before);
        const std::string digest = Digest(out, Joined(all, {"--resume=latest"}), after);
        EXPECT_LE(
            LargestRelativeDifference(folder_.Metrics(out, "loss"), folder_.Metrics("one", "loss")),
            1e-10);
        if (before == after) {
          EXPECT_EQ(digest, Digest(out + "straight", all, after));
        }
      }
    }
  }
}

TEST_F(CarriedRun, SaysWhatIsLeftOut) {
  const auto plan = folder_.Train("plan", With({"--plan", "--epochs=2"}));
  EXPECT_THAT(plan.out, HasSubstr("\nsteps          18 of 6 samples over 1 rank\n"));
  EXPECT_THAT(plan.out,
              HasSubstr("data.train: 2 of 56 samples are left out: beyond rows of one length\n"
                        "data.test: 3 of 15 samples are left out: beyond rows of one length\n"))
      << plan.ToString();
  EXPECT_THAT(plan.out,
              HasSubstr("\ncarried        384 bytes of layers' state, from step to step\n"));
  const auto shuffled = folder_.Train("shuffled");
  EXPECT_EQ(shuffled.exit_code, 1);
  EXPECT_THAT(shuffled.err,
              HasSubstr("net.textproto:6:3: layer \"rnn\": it carries rows from batch "
                        "to batch, but the 15 samples of the test are no whole "
                        "batches of 6; set test_batch to 5, or"));
}

}  // namespace
}  // namespace gyre
