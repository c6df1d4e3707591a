// The loop of ranks with folders of their own.
#include <gmock/gmock.h>

#include <cerrno>

#include "absl/strings/str_replace.h"
#include "tests/training/run/trainer_case.h"

namespace gyre {
namespace {

using testing::Each;
using testing::HasSubstr;

const auto kCancelled = testing::Truly(absl::IsCancelled);

// Ranks with folders of their own, on hosts apart: a checkpoint outlives the loss of one, and the
// run goes on from it.  One that rank 0 alone writes is lent to the others.
TEST_F(TrainerTest, RanksApartKeepEachOthersParts) {
  const std::atomic<bool> stop = true;  // after a few steps
  TrainingOptions options;
  options.out = "out";
  options.stop = &stop;
  enum Keeps { kNew, kOld, kNothing };  // rank 1, of checkpoints
  struct Case {
    int lost;
    bool shard;
    Keeps keeps;
  };
  int64_t step = 0;
  for (const Case& c : {Case{-1, true, kNew},
                        {1, true, kNew},
                        {0, true, kNew},
                        {-1, false, kOld},
                        {1, false, kNothing}}) {
    if (c.lost >= 0) std::filesystem::remove_all(HostOf(c.lost));
    const int64_t before = step;
    EXPECT_THAT(RunApart(options, {}, c.shard), Each(kCancelled));
    step = NewestOf(0);
    EXPECT_GT(step, before);
    EXPECT_EQ(NewestOf(1), c.keeps == kNew ? step : c.keeps == kOld ? before : -1);
    EXPECT_EQ(std::filesystem::exists(HostOf(1) + "/out"), c.keeps != kNothing);
    options.resume = "latest";
  }
  // A new run does not mix with what another's hosts have.
  std::filesystem::remove_all(HostOf(0));
  options.resume = "";
  EXPECT_TRUE(absl::IsCancelled(RunApart(options, {}, true)[0]));
  std::filesystem::remove_all(HostOf(0));
  EXPECT_THAT(RunApart(options, {}, true)[1].message(), HasSubstr("already holds checkp"));
}

// The next phase's nets load what each host lacks of the checkpoint that ends the one before.
TEST_F(TrainerTest, APhaseBeginsApart) {
  net_ = absl::StrReplaceAll(kNet, {{"outputs: 2", "outputs: 2 bias { trainable_from: 3 }"}});
  TrainingOptions options;
  for (const bool shard : {true, false}) {
    options.out = "out";
    EXPECT_THAT(RunApart(options, {"steps=6"}, shard), Each(absl::OkStatus()));
    EXPECT_EQ(NewestOf(0), 6);
    EXPECT_EQ(NewestOf(1), shard ? 6 : -1);
    const std::string apart = digest_;
    options.out = folder_ / absl::StrCat("together", shard);
    EXPECT_THAT(RunShared(options, {"steps=6"}), Each(absl::OkStatus()));
    EXPECT_EQ(apart, digest_);
    for (const int rank : {0, 1}) std::filesystem::remove_all(HostOf(rank));
  }
}

// What a neighbour cannot keep ends the run with its reason, and what was there stands.
TEST_F(TrainerTest, ACopyThatCannotBeKeptEndsAllRanks) {
  std::atomic<int> writes = 0;
  sync_what = "optimizer-00001-of-00002";
  sync_it = [&](const std::string& path) {
    if (!absl::StrContains(path, HostOf(1)) || ++writes <= 6) return 0;
    errno = ENOSPC;
    return -1;
  };
  TrainingOptions options;
  options.out = "out";
  for (const absl::Status& status : RunApart(options, {"checkpoint_every=1"})) {
    EXPECT_THAT(status.message(), HasSubstr("optimizer-00001-of-00002.safetensors: No spa"));
  }
  sync_it = nullptr;
  sync_what = "weights.safetensors";
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  options.resume = "latest";
  for (const absl::Status& status : RunApart(options, {})) {
    EXPECT_THAT(status.message(), HasSubstr("stopped after step "));
    EXPECT_THAT(status.message(), testing::Not(HasSubstr("after step 1;")));
  }
}

// A rank that fails while copies are on their way: what was there before stands.
TEST_F(TrainerTest, AFailedRankApartLeavesTheCheckpointBefore) {
  TrainingOptions options;
  options.out = "out";
  for (int reads : {36, 56}) {
    const auto statuses = RunApart(options, {"checkpoint_every=1"}, /*shard=*/true,
                                   /*reads_of_1=*/kReadsBefore + reads);
    EXPECT_THAT(statuses[1].message(), HasSubstr("takes labels from 0 to 1, got 7"));
    options.resume = "latest";
  }
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  for (const absl::Status& status : RunApart(options, {})) {
    EXPECT_THAT(status, kCancelled);
    EXPECT_THAT(status.message(), testing::Not(HasSubstr("after step 1;")));
  }
}

}  // namespace
}  // namespace gyre
