// The loop itself, with data sets that a file could not be: what fails on one rank alone is told as
// what it is, and a checkpoint is on the disk, once.
#include <gmock/gmock.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/folder_lock.h"
#include "tests/training/run/trainer_case.h"

namespace gyre {
namespace {

using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;

TEST_F(TrainerTest, ARunThatEndsBeforeItStopsIsDone) {
  for (int steps = 1; steps <= 4; ++steps) {
    const std::string out = folder_ / absl::StrCat("out", steps);
    const absl::Status status = RunAndStop(out, steps);
    EXPECT_EQ(status.code(), steps <= 3 ? absl::StatusCode::kOk : absl::StatusCode::kCancelled);
    EXPECT_EQ(CheckpointStore(out + "/checkpoints").NewestStep().value(), std::min(steps, 3));
  }
}

// Training goes on while a checkpoint is written; what goes wrong then ends a step, not the run's
// million of them.
TEST_F(TrainerTest, ACheckpointIsWrittenBesideTraining) {
  bool went_on = false;
  sync_it = [&](const std::string&) {
    went_on = TrainingGoesOn();
    errno = EIO;
    return -1;
  };
  std::atomic<bool> save = true;
  options_.save = &save;
  // No other checkpoint, which would wait for this one.
  const absl::Status status = RunAlone(1'000'000'000, {"checkpoint_every=1000000"});
  EXPECT_TRUE(went_on);
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith("cannot sync " + folder_ / "out/checkpoints/"));
  EXPECT_THAT(std::string(status.message()), EndsWith("weights.safetensors: Input/output error"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "out/checkpoints"));
}

// An error that all ranks see ends none of them while rank 0 writes.
TEST_F(TrainerTest, ADivergedRunKeepsTheCheckpointBeingWritten) {
  std::atomic<bool> written = false;
  sync_it = [&](const std::string&) {
    usleep(300'000);
    written = true;
    return 0;
  };
  std::barrier<> both(2);  // as a tool's rank waits before it ends the others
  RunRanksOn("ring", 2, 20'000, [&](ProcessGroup& communication) {
    const absl::Status status =
        Run(communication, 1'000'000, options_, {"checkpoint_every=1", "learning_rate.base=1e38"},
            [&] { both.arrive_and_wait(); });
    EXPECT_TRUE(written) << communication.rank();
    EXPECT_THAT(status.message(), HasSubstr("not finite"));
    EXPECT_THAT(status.message(), HasSubstr("the checkpoint of step 1 stands"));
  });
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step_00000001/state.pb"));
}

// What the thread of a checkpoint reads is not replaced under it: the step that is timed comes
// right after the one that is saved, and many come after that.
TEST_F(TrainerTest, PagesAreNotPlannedAnewUnderACheckpoint) {
  // Its first weights are not needed beside the second.
  std::string wide;
  for (const char* name : {"fc1", "fc2", "fc3"}) {
    absl::StrAppend(&wide, "layer { name: '", name, "' dense { outputs: 256 } } ");
  }
  net_ = absl::StrReplaceAll(kNet, {{"layer { name: \"fc\"", wide + "layer { name: \"fc\""}});
  sim_bytes_ = 800 << 10;
  const auto run = [&](const std::string& steps) {
    return RunAlone(1'000'000'000, {steps, "checkpoint_every=50", "distributed.bucket_bytes=1024"});
  };
  ASSERT_EQ(run("steps=49"), absl::OkStatus());
  options_.resume = "latest";
  bool held = false, went_on = false;
  sync_what = "out/metrics.jsonl";  // the first thing that the thread does
  sync_it = [&](const std::string&) {
    if (std::exchange(held, true)) return 0;
    went_on = TrainingGoesOn(/*ms=*/300);
    return 0;
  };
  ASSERT_EQ(run("steps=99"), absl::OkStatus());
  EXPECT_TRUE(held);
  EXPECT_FALSE(went_on);
}

// A sample that one rank cannot read ends all with the state before its step.  A run goes on from
// there when the file is whole again.  Forward changes the running statistics of batch_norm.
TEST_F(TrainerTest, ABadSampleLeavesTheStateBeforeItsStep) {
  net_ = absl::StrReplaceAll(kNet, {{"layer { name: \"fc\"",
                                     "layer { name: \"norm\" batch_norm {} }"
                                     " layer { name: \"fc\""}});
  struct Case {
    int ranks;
    std::vector<std::string> more;
    int64_t saved = 9;  // the step
  };
  const std::string served = "distributed.sync=BSP";
  const Case cases[] = {{1, {}},
                        {3, {}},
                        {3, {"distributed.shard_optimizer=true"}},
                        {2, {served, "optimizer.clip_norm=0.1"}},
                        {3, {served, "distributed.servers=1"}},
                        // The step has begun: the last checkpoint stands.
                        {3, {served, "distributed.servers=1", "accumulate=2"}, 8}};
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.ranks, " ", absl::StrJoin(c.more, " ")));
    std::vector<std::string> more = {"batch=6", "steps=15", "checkpoint_every=4",
                                     "distributed.allreduce=direct"};
    more.insert(more.end(), c.more.begin(), c.more.end());
    const auto run = [&](const std::string& out, const std::string& resume) {
      TrainingOptions options;
      options.out = folder_ / out;
      options.resume = resume;
      std::vector<absl::Status> statuses(c.ranks);
      RunRanksOn("direct", c.ranks, 20'000, [&](ProcessGroup& communication) {
        statuses[communication.rank()] = Run(communication, 1'000'000'000, options, more);
      });
      return statuses;
    };
    bad_sample = -1;
    EXPECT_THAT(run("straight", ""), testing::Each(absl::OkStatus()));
    const std::string digest = digest_;
    const int64_t samples = c.saved == 9 ? 6 : 12;  // of a step
    bad_sample = SampleOrder(kSamples, 1).At(9 * samples + samples - 2);
    const std::vector<absl::Status> statuses = run("bad", "");
    for (int rank = 0; rank < c.ranks; ++rank) {
      EXPECT_THAT(statuses[rank].message(),
                  HasSubstr("step 10: training data: 1 sample could not be read, more"));
    }
    EXPECT_THAT(std::string(statuses[0].message()),
                EndsWith(absl::StrFormat("; the checkpoint of step %d stands", c.saved)));
    bad_sample = -1;
    EXPECT_THAT(run("bad", "latest"), testing::Each(absl::OkStatus()));
    EXPECT_EQ(digest_, digest);
    std::filesystem::remove_all(folder_ / "straight");
    std::filesystem::remove_all(folder_ / "bad");
  }
}

// A test that cannot be read costs no work either.
TEST_F(TrainerTest, ATestThatFailsLateLeavesACheckpoint) {
  const std::string data = R"(idx { images: "i" labels: "l" })";
  WriteBytes(folder_ / "trainer",
             absl::StrReplaceAll(ReadBytes(folder_ / "trainer"),
                                 {{data, absl::StrCat(data, " } test { ", data)}}));
  test_reads_ = kSamples + kSamples / 2;  // all before it begins
  const absl::Status status = RunAlone(1'000'000, {"steps=9", "evaluate_every=3"});
  EXPECT_EQ(CheckpointStore(folder_ / "out/checkpoints").NewestStep().value(), 3);
  EXPECT_THAT(std::string(status.message()),
              EndsWith("or raise it; the checkpoint of step 3 stands"));
}

// Two runs would remove each other's file that tells whether the folder can be written.
TEST_F(TrainerTest, AFolderIsProbedUnderItsLock) {
  absl::Status of_another;
  sync_what = ".probe.tmp-";
  sync_it = [&](const std::string&) {
    of_another = FolderLock::Take(options_.out, std::chrono::milliseconds(0)).status();
    return 0;
  };
  EXPECT_EQ(RunAlone(1'000'000, {"steps=1"}), absl::OkStatus());
  EXPECT_TRUE(absl::IsAlreadyExists(of_another)) << of_another;
}

TEST_F(TrainerTest, ARunClearsWhatADeadOneHasLeftOfItsMetrics) {
  std::filesystem::create_directory(options_.out);
  WriteBytes(options_.out + "/.metrics.jsonl.tmp-1", "");
  EXPECT_EQ(RunAlone(1'000'000, {"steps=1"}), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(options_.out + "/.metrics.jsonl.tmp-1"));
}

// A checkpoint has a digest of the data that it was trained on.
TEST_F(TrainerTest, OtherTrainingDataThanACheckpointsAreWarnedOf) {
  EXPECT_TRUE(absl::IsCancelled(RunAndStop(folder_ / "out")));
  const std::string path = folder_ / "out/checkpoints/step_00000003/state.pb";
  CheckpointFile file;
  CheckpointState state;
  ASSERT_TRUE(file.ParseFromString(ReadBytes(path)) && state.ParseFromString(file.state()));
  std::string& digest = (*state.mutable_choices())["training data"];
  ASSERT_EQ(digest.size(), 32u);
  const std::string all = digest;
  for (const std::string& of_checkpoint : {all, std::string(32, '0')}) {
    digest = of_checkpoint;
    file.set_state(state.SerializeAsString());
    file.set_state_sha256(Sha256(file.state()));
    WriteBytes(path, file.SerializeAsString());
    options_.out = folder_ / "other";
    options_.resume = folder_ / "out/checkpoints/step_00000003";
    testing::internal::CaptureStdout();
    EXPECT_EQ(RunAlone(1'000'000, {"steps=4"}), absl::OkStatus());
    EXPECT_EQ(absl::StrContains(testing::internal::GetCapturedStdout(),
                                "warning: resumed with other training data: "),
              of_checkpoint != all);
    std::filesystem::remove_all(folder_ / "other");
  }
}

// A rank writes its part, and rank 0 makes it a checkpoint, while training goes on.
TEST_F(TrainerTest, PartsAreWrittenBesideTraining) {
  std::atomic<bool> stop = false, save = true;
  std::atomic<bool> waited = false, went_on = false;
  sync_what = "";
  sync_it = [&](const std::string& path) {
    if (absl::EndsWith(path, "state.pb")) stop = true;  // rank 0 knows of both parts
    if (!absl::StrContains(path, "optimizer-00002-of-00002") || waited.exchange(true)) return 0;
    went_on = TrainingGoesOn();
    return 0;
  };
  options_.stop = &stop;
  options_.save = &save;
  const auto statuses = RunShared(options_, {"checkpoint_every=1000000"});
  EXPECT_TRUE(absl::IsCancelled(statuses[0])) << statuses[0];
  EXPECT_TRUE(absl::IsCancelled(statuses[1])) << statuses[1];
  EXPECT_TRUE(went_on);
  const auto checkpoint = CheckpointStore(folder_ / "out/checkpoints").LoadLatest(nullptr).value();
  EXPECT_TRUE(std::filesystem::exists(checkpoint.path + "/optimizer-00002-of-00002.safetensors"));
}

// A rank whose step fails alone tells of its part no more, and the checkpoint is there.
TEST_F(TrainerTest, AFailedRankKeepsTheCheckpointBeingWritten) {
  failed = false;
  sync_what = "optimizer-00002-of-00002";
  sync_it = [&](const std::string&) {
    for (int ms = 0; ms < 20'000 && !failed; ++ms) usleep(1000);
    return 0;
  };
  std::atomic<bool> save = true;
  options_.save = &save;
  const auto statuses = RunShared(options_, {"checkpoint_every=1000000"}, kReadsBefore + 36);
  EXPECT_THAT(statuses[1].message(), HasSubstr("takes labels from 0 to 1, got 7"));
  EXPECT_THAT(std::string(statuses[0].message()), EndsWith(" stands"));
  EXPECT_EQ(CheckpointStore(folder_ / "out/checkpoints").LoadLatest(nullptr).status(),
            absl::OkStatus());
}

// Where another rank than 0 cannot write: all end with its reason, and what was there stands.
TEST_F(TrainerTest, APartThatCannotBeWrittenEndsAllRanks) {
  std::atomic<int> writes = 0;
  sync_what = "optimizer-00002-of-00002";
  sync_it = [&](const std::string&) {
    if (++writes <= 4) return 0;  // each is synced as a file, then with its folder
    errno = EIO;
    return -1;
  };
  const auto statuses = RunShared(options_, {"checkpoint_every=1"});
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status.message(), HasSubstr("optimizer-00002-of-00002.safetensors: Input"));
  }
  EXPECT_THAT(std::string(statuses[0].message()), EndsWith("; the checkpoint of step 2 stands"));
  std::vector<std::string> skipped;
  const auto checkpoint = CheckpointStore(folder_ / "out/checkpoints").LoadLatest(&skipped).value();
  EXPECT_EQ(checkpoint.state.step(), 2);
  EXPECT_TRUE(skipped.empty());
}

// The folders that a run makes are entries of those above them, and its lines come before the
// checkpoint that counts on them.
TEST_F(TrainerTest, WhatACheckpointCountsOnIsOnTheDisk) {
  const std::string out = folder_ / "a/b/out";
  synced.clear();
  EXPECT_TRUE(absl::IsCancelled(RunAndStop(out)));
  for (const char* holder : {"", "/a", "/a/b", "/a/b/out", "/a/b/out/checkpoints"}) {
    EXPECT_THAT(synced, Contains(absl::StrCat(folder_.path(), holder)));
  }
  const auto first = [](const std::string& part) {
    return std::ranges::find_if(
        synced, [&](const std::string& path) { return absl::StrContains(path, part); });
  };
  EXPECT_LT(first("metrics.jsonl"), first("weights.safetensors"));
  EXPECT_LT(first("weights.safetensors"), synced.end());
  // A step that is due for a checkpoint, and the last before a stop, is saved once.
  EXPECT_THAT(synced, Contains(testing::EndsWith("/weights.safetensors")).Times(1));
}

}  // namespace
}  // namespace gyre
