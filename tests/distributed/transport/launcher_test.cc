#include "distributed/transport/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace gyre {
namespace {

using Variables = std::map<std::string, std::string>;

// With these and no others of a launcher's.
void SetEnvironment(const Variables& variables) {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
        "SLURM_NODEID", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

void ExpectRank(const RankAndSize& announced, int rank, int size) {
  EXPECT_EQ(announced.rank, rank);
  EXPECT_EQ(announced.size, size);
}

TEST(Launcher, Nobody) {
  SetEnvironment({});
  EXPECT_FALSE(StartedAsRank());
  EXPECT_EQ(Launcher(), "");
  ExpectRank(AnnouncedRank(), 0, 1);
  ExpectRank(AnnouncedLocalRank(), 0, 1);
  EXPECT_TRUE(CheckLauncher().ok());
}

TEST(Launcher, Mpirun) {
  SetEnvironment({{"OMPI_COMM_WORLD_RANK", "3"},
                  {"OMPI_COMM_WORLD_SIZE", "5"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                  // Within an allocation of Slurm's, whose srun starts mpirun's daemons.
                  {"PMIX_RANK", "0"},
                  {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_TRUE(StartedAsRank());
  EXPECT_EQ(Launcher(), "mpirun");
  ExpectRank(AnnouncedRank(), 3, 5);
  ExpectRank(AnnouncedLocalRank(), 1, 2);
  EXPECT_TRUE(CheckLauncher().ok());
}

TEST(Launcher, SrunWithPmix) {
  struct Case {
    const char *node, *local, *tasks;
    int local_rank, local_size;
  };
  for (const Case& c : {Case{"0", "3", "4(x2),1", 3, 4}, Case{"1", "0", "4(x2),1", 0, 4},
                        Case{"2", "0", "4(x2),1", 0, 1}, Case{"0", "1", "2", 1, 2},
                        Case{"1", "6", "2,7(x11)", 6, 7},
                        // Nothing that says how many: as if alone on its host.
                        Case{"3", "0", "4(x2),1", 0, 1}, Case{"0", "2", "many", 0, 1},
                        Case{"0", "2", "4(x", 2, 4}, Case{"0", "0", "", 0, 1}}) {
    SCOPED_TRACE(std::string(c.tasks) + ", node " + c.node);
    SetEnvironment({{"PMIX_RANK", "6"},
                    {"SLURM_STEP_NUM_TASKS", "9"},
                    {"SLURM_NODEID", c.node},
                    {"SLURM_LOCALID", c.local},
                    {"SLURM_STEP_TASKS_PER_NODE", c.tasks}});
    EXPECT_TRUE(StartedAsRank());
    EXPECT_EQ(Launcher(), "srun");
    ExpectRank(AnnouncedRank(), 6, 9);
    ExpectRank(AnnouncedLocalRank(), c.local_rank, c.local_size);
    EXPECT_TRUE(CheckLauncher().ok());
  }
}

// Each would take itself for the only one.
TEST(Launcher, OthersThatStartSeveralAreRefused) {
  const Variables several[] = {{{"SLURM_STEP_NUM_TASKS", "2"}},
                               {{"PMI_SIZE", "3"}},
                               {{"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "3"}},
                               {{"PMIX_RANK", "0"}}};
  for (const Variables& variables : several) {
    SCOPED_TRACE(variables.begin()->first);
    SetEnvironment(variables);
    EXPECT_FALSE(StartedAsRank());
    ExpectRank(AnnouncedRank(), 0, 1);
    EXPECT_EQ(CheckLauncher().code(), absl::StatusCode::kFailedPrecondition);
  }
  SetEnvironment({{"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_TRUE(CheckLauncher().ok());
}

}  // namespace
}  // namespace gyre
