// A resumed run sums as its checkpoint did, unless its trainer names an algorithm.  That it then
// has the bits of one that was not interrupted: ranks_test.

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/run/run_start.h"
#include "tests/data/temp_folder.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

// Rank 1 alone has the checkpoint; the others have no folder.
TEST(KeepAllreduce, TakesThatOfTheCheckpoint) {
  TrainerConfig none, named, served, sharded;
  sharded.mutable_distributed()->set_shard_optimizer(true);
  named.mutable_distributed()->set_allreduce("auto");
  served.mutable_distributed()->set_sync(DistributedConfig::ASYNC);
  const struct {
    const char* recorded;
    const TrainerConfig& config;
    const char* resume;
    const char* algorithm;
  } cases[] = {{"ring", none, "latest", "ring"},
               {"ring", none, "auto", "ring"},
               {"ring, ranks on hosts 0 1 0", none, "latest", "ring"},
               {"shared, in halves", none, "latest", "shared"},
               {"auto: shared", none, "latest", "auto"},
               {"parameter server, async", none, "latest", "auto"},
               {"nccl", none, "latest", "auto"},  // not of this device
               {"mpi", none, "latest", "auto"},   // not of threads
               {"hierarchical", sharded, "latest", "auto"},
               {"ring", sharded, "latest", "ring"},
               {"ring", none, "", "auto"},
               {"ring", named, "latest", "auto"},
               {"ring", served, "latest", "auto"}};
  for (const auto& [recorded, config, resume, algorithm] : cases) {
    SCOPED_TRACE(absl::StrCat(recorded, ", --resume=", resume));
    const TempFolder folder;
    CheckpointStore store(folder / "rank1/checkpoints");
    CheckpointState state;
    state.set_step(5);
    (*state.mutable_choices())["allreduce"] = recorded;
    ASSERT_TRUE(store.MakeFolder().ok());
    ASSERT_TRUE(store.Publish(state, {}).ok());
    RunRanksOn("auto", 3, kPatienceMs, [&, resume = resume](ProcessGroup& group) {
      TrainingOptions options;
      options.out = folder / absl::StrCat("rank", group.rank());
      options.resume = resume;
      const absl::Status status = KeepAllreduce(config, options, DeviceKind::kCpu, group);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(group.algorithm(), algorithm);
      std::vector<float> data(1000, 1.0f);
      ASSERT_TRUE(group.Wait(group.Submit("data", View(data), nullptr)).ok());
      EXPECT_EQ(data, std::vector<float>(1000, 3.0f));
    });
  }
}

}  // namespace
}  // namespace gyre
