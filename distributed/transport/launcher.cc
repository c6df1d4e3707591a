#include "distributed/transport/launcher.h"

#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gyre {
namespace {

constexpr char kMpirunSize[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kSrunSize[] = "SLURM_STEP_NUM_TASKS";
constexpr char kPmixRank[] = "PMIX_RANK";

bool Has(const char* variable) { return std::getenv(variable) != nullptr; }

// {0, 1} where either variable is missing or no number.
RankAndSize Announced(const char* rank, const char* size) {
  RankAndSize announced;
  if (!Has(rank) || !Has(size) || !absl::SimpleAtoi(std::getenv(rank), &announced.rank) ||
      !absl::SimpleAtoi(std::getenv(size), &announced.size)) {
    return {};
  }
  return announced;
}

// Of a node, from "4(x2),1": four on each of two nodes, then one.
int TasksOfNode(absl::string_view tasks_per_node, int node) {
  for (const absl::string_view group : absl::StrSplit(tasks_per_node, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(absl::StripSuffix(group, ")"), absl::MaxSplits("(x", 1));
    int tasks = 1, nodes = 1;
    if (!absl::SimpleAtoi(parts.first, &tasks)) return 1;
    if (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &nodes)) return 1;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return 1;
}

absl::Status StartedBy(const char* launcher, const char* variable) {
  return absl::FailedPreconditionError(
      absl::StrCat(launcher, " has started this process as one of several (", variable, "=",
                   std::getenv(variable),
                   "), and each would run alone; ranks come from Open MPI's mpirun, from srun "
                   "--mpi=pmix, or from --ranks (for one process, unset ",
                   variable, ")"));
}

}  // namespace

bool StartedAsRank() { return Has(kMpirunSize) || (Has(kSrunSize) && Has(kPmixRank)); }

absl::string_view Launcher() {
  if (!StartedAsRank()) return "";
  return Has(kMpirunSize) ? "mpirun" : "srun";
}

RankAndSize AnnouncedRank() {
  if (!StartedAsRank()) return {};
  if (Has(kMpirunSize)) return Announced("OMPI_COMM_WORLD_RANK", kMpirunSize);
  return Announced(kPmixRank, kSrunSize);
}

RankAndSize AnnouncedLocalRank() {
  if (!StartedAsRank()) return {};
  if (Has(kMpirunSize)) {
    return Announced("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  // srun says no number of a node's tasks, but a list of all nodes'.
  const RankAndSize node = Announced("SLURM_NODEID", kSrunSize);
  RankAndSize local = Announced("SLURM_LOCALID", kSrunSize);
  const char* const tasks = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  local.size = TasksOfNode(tasks == nullptr ? "" : tasks, node.rank);
  return local.rank < local.size ? local : RankAndSize{};
}

absl::Status CheckLauncher() {
  if (StartedAsRank()) return absl::OkStatus();
  struct Other {
    const char *name, *size;
  };
  bool alone = false;
  for (const Other& other : {Other{"srun", kSrunSize}, Other{"another mpiexec", "PMI_SIZE"}}) {
    const char* const text = std::getenv(other.size);
    if (text == nullptr) continue;
    int size = 0;
    if (!absl::SimpleAtoi(text, &size) || size > 1) return StartedBy(other.name, other.size);
    alone = true;
  }
  // PMIx does not say in the environment of how many.
  if (!alone && Has(kPmixRank)) return StartedBy("PMIx", kPmixRank);
  return absl::OkStatus();
}

}  // namespace gyre
