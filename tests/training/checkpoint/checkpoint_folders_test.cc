// Checkpoints of ranks with folders of their own: who keeps what for whom; how copies come there;
// and how what is left in any of the folders becomes one checkpoint in all.

#include "engine/training/checkpoint/checkpoint_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/checkpoint/checkpoint_gather.h"
#include "engine/training/checkpoint/checkpoint_shards.h"
#include "tests/data/random_tensors.h"
#include "tests/data/temp_folder.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CheckpointFolders, EveryRankHasANeighbourOfAnotherFolder) {
  const CheckpointFolders one({0, 0, 0});
  EXPECT_FALSE(one.several());
  EXPECT_TRUE(one.Publishes(0));
  EXPECT_FALSE(one.Publishes(1));

  const CheckpointFolders three({0, 0, 0, 3, 4, 4});
  EXPECT_THAT(three.folders(),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(4, 5)));
  EXPECT_THAT(three.KeptBy(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(three.KeptBy(4), ElementsAre(3));
  EXPECT_THAT(three.KeptBy(5), ElementsAre());
  EXPECT_EQ(three.NeighbourOf(4), 0);
  EXPECT_EQ(three.NeighbourOf(5), 1);
  EXPECT_TRUE(three.Publishes(3));
  EXPECT_FALSE(three.Publishes(5));

  // Dealt out in turn; and one that sees another's mark, which does not see its own folder so.
  EXPECT_THAT(CheckpointFolders({0, 1, 0, 1}).folders(),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(CheckpointFolders({0, 0, 1}).folders(),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(CheckpointFolders, RanksMeetByMarks) {
  TempFolder folder;
  std::vector<std::string> roots = {folder / "a", folder / "b/c", folder / "a"};
  RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
    const auto met = CheckpointFolders::Meet(group, roots[group.rank()], "7").value();
    EXPECT_THAT(met.folders(), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  });
  EXPECT_TRUE(fs::is_empty(folder / "a"));
  EXPECT_TRUE(fs::is_empty(folder / "b/c"));

  WriteBytes(folder / "file", "no folder");
  roots[1] = folder / "file/c";
  RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
    const absl::Status status = CheckpointFolders::Meet(group, roots[group.rank()], "7").status();
    EXPECT_THAT(status.message(), HasSubstr(group.rank() == 1 ? "file/c" : "rank 1 cannot write"));
  });
}

constexpr int kRanks = 3;
using Crc32s = std::map<std::string, uint32_t>;

// Three hosts, of a rank each; a checkpoint is what RunState leaves of it.
class SeveralFolders : public testing::Test {
 protected:
  std::string RootOf(int rank) const {
    return folder_ / absl::StrCat("host", rank, "/checkpoints");
  }
  std::string StepOf(int rank, int step) const {
    return absl::StrFormat("%s/step_%08d", RootOf(rank), step);
  }
  static std::vector<std::vector<std::string>> Files() {
    std::vector<std::vector<std::string>> files = {{kWeightsFile}, {}, {}};
    for (int r = 0; r < kRanks; ++r) files[r].push_back(ShardName(kOptimizerFile, r, kRanks));
    return files;
  }

  // All ranks save a step; those of `nameless` end before they give it its name.
  void Save(int step, std::vector<int> nameless = {}, int seed = 0) {
    CheckpointState state;
    state.set_step(step);
    state.set_position(step);
    RunRanksOn("direct", kRanks, kPatienceMs, [&](ProcessGroup& group) {
      const int me = group.rank();
      CheckpointStore store(RootOf(me), "token");
      const CheckpointFolders folders({0, 1, 2});
      CheckpointShards parts(Files(), &folders, group);
      Crc32s own;
      const auto files = Files();
      for (const std::string& file : files[me]) {
        RandomTensors tensors(static_cast<uint64_t>(step + seed), 0, {DType::kF32});
        tensors.Add(file, DType::kF32, Shape{me == 1 ? 2'500'000 : 31, 1});  // more than a segment
        own[file] = store.Write(step, file, tensors.tensors()).value();
        parts.Wrote(file, own[file]);
      }
      ASSERT_EQ(parts.Pack(store, step), absl::OkStatus());
      std::vector<double> numbers;
      parts.AppendTo(numbers);
      ASSERT_TRUE(group.Sum("parts", numbers).ok());
      parts.Take(numbers);
      ASSERT_EQ(parts.FinishExchange(), absl::OkStatus());
      ASSERT_EQ(parts.WriteCopies(store, step), absl::OkStatus());
      ASSERT_EQ(store.WriteState(state, parts.crc32_of_file()), absl::OkStatus());
      if (std::ranges::count(nameless, me) == 0) {
        ASSERT_EQ(store.PublishWritten(step), absl::OkStatus());
      }
      const std::lock_guard lock(mutex_);
      crc32s_[step] = parts.crc32_of_file();
    });
  }

  // Of all ranks, which must be of one mind: "step_N", or what is wrong.  Then it is whole in each.
  std::string Gather(const std::string& name = "") {
    std::vector<std::string> said(kRanks);
    RunRanksOn("direct", kRanks, kPatienceMs, [&](ProcessGroup& group) {
      const int me = group.rank();
      const auto gathered = GatherCheckpoint(group, RootOf(me), name);
      if (!gathered.ok()) {
        said[me] = std::string(gathered.status().message());
      } else if (*gathered) {
        said[me] = fs::path((*gathered)->path).filename();
        skipped_ = me == 0 ? (*gathered)->skipped : skipped_;
        received_[me] = (*gathered)->received;
        const auto checkpoint = LoadCheckpoint((*gathered)->path).value();
        const auto here = ChecksumsOf((*gathered)->path);
        EXPECT_TRUE(here.ok() && *here == crc32s_[checkpoint.state.step()]);
      }
    });
    for (int rank = 1; rank < kRanks; ++rank) {
      EXPECT_THAT(said[rank], HasSubstr(said[0].substr(0, 10)));
    }
    return said[0];
  }

  TempFolder folder_;
  std::mutex mutex_;
  std::map<int, Crc32s> crc32s_;  // by step
  std::vector<std::string> skipped_;
  bool received_[kRanks] = {};
};

TEST_F(SeveralFolders, WhateverHostIsLostItIsWhole) {
  for (int lost = 0; lost < kRanks; ++lost) {
    Save(10 + lost);
    EXPECT_FALSE(LoadCheckpoint(StepOf(lost, 10 + lost)).ok());
    fs::remove_all(folder_ / absl::StrCat("host", lost));
    EXPECT_EQ(Gather(), absl::StrFormat("step_%08d", 10 + lost));
    EXPECT_TRUE(skipped_.empty());
    EXPECT_TRUE(received_[lost]);
    EXPECT_EQ(Gather(), absl::StrFormat("step_%08d", 10 + lost));  // nothing is left to send
    EXPECT_THAT(received_, ElementsAre(false, false, false));
  }
}

TEST_F(SeveralFolders, ABrokenCopyIsAsOneThatIsMissing) {
  Save(5);
  const std::string part = "/" + ShardName(kOptimizerFile, 1, kRanks);  // of ranks 1 and 2
  for (int rank : {1, 2}) {
    std::string bytes = ReadBytes(StepOf(rank, 5) + part);
    bytes[bytes.size() / 2] ^= 4;
    WriteBytes(StepOf(rank, 5) + part, bytes);
    EXPECT_EQ(Gather(), "step_00000005");
    EXPECT_THAT(received_, ElementsAre(rank == 1, rank == 1, true));
  }
  WriteBytes(StepOf(2, 5) + "/state.pb", "torn");
  fs::remove(StepOf(0, 5) + "/state.pb");
  EXPECT_EQ(Gather(), "step_00000005");
}

TEST_F(SeveralFolders, WhatIsWholeNowhereIsNamedAndTheOneBeforeUsed) {
  Save(5);
  Save(6);
  const std::string part = "/" + ShardName(kOptimizerFile, 1, kRanks);
  fs::remove(StepOf(1, 6) + part);
  WriteBytes(StepOf(2, 6) + part, "x");
  EXPECT_EQ(Gather(), "step_00000005");
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_THAT(skipped_[0], testing::StartsWith("step_00000006: optimizer-00002-of-00003.safetensors"
                                               " is whole on no host; rank 0: "));
  EXPECT_THAT(skipped_[0], HasSubstr("; rank 1: " + StepOf(1, 6) + part + ": missing; rank 2: "));
  EXPECT_THAT(skipped_[0], HasSubstr(part + ": expected 8 more bytes, got 1"));
  EXPECT_THAT(Gather("step_00000006"), HasSubstr("is broken; the newest: step_00000006: optim"));
  EXPECT_THAT(Gather("step_00000007"), HasSubstr("no checkpoint in " + StepOf(0, 7)));

  for (int rank = 0; rank < kRanks; ++rank) {
    for (int step : {5, 6}) WriteBytes(StepOf(rank, step) + "/state.pb", "x");
  }
  EXPECT_THAT(Gather(), HasSubstr("each of the 2 checkpoints"));
}

// Rank 0 has named it: it is there, though others ended before they could name theirs.  One that
// nobody has named is not looked at.
TEST_F(SeveralFolders, WhatOneHasNamedIsThere) {
  Save(5);
  Save(6, {1, 2});
  fs::remove_all(folder_ / "host2");
  EXPECT_EQ(Gather(), "step_00000006");
  EXPECT_THAT(received_, ElementsAre(true, true, true));
  Save(7, {0, 1, 2});
  EXPECT_EQ(Gather(), "step_00000006");
  EXPECT_TRUE(skipped_.empty());
}

// A host that was away has the same steps, of other ranks or of a run of before.
TEST_F(SeveralFolders, OneOfAnotherRunIsReplaced) {
  Save(5, {}, /*seed=*/1);
  for (int rank : {0, 1}) fs::remove_all(RootOf(rank));
  fs::rename(folder_ / "host2", folder_ / "away");
  Save(5);
  fs::remove_all(folder_ / "host2");
  fs::rename(folder_ / "away", folder_ / "host2");
  EXPECT_EQ(Gather(), "step_00000005");
  EXPECT_TRUE(received_[2]);
}

TEST_F(SeveralFolders, ThereMayBeNone) {
  EXPECT_EQ(Gather(), "");
  EXPECT_FALSE(fs::exists(folder_ / "host0"));
  fs::create_directories(RootOf(1));
  EXPECT_THAT(Gather(), HasSubstr("no checkpoint in"));
}

// A folder that all see, and one of them cannot write in: it is read as it is.
TEST_F(SeveralFolders, WhoCannotWriteReads) {
  Save(5);
  fs::remove_all(folder_ / "host1");
  WriteBytes(folder_ / "host1", "no folder");
  EXPECT_EQ(Gather(), "");
}

}  // namespace
}  // namespace gyre
