#include "distributed/transport/launcher.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr char kMpirunSize[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kSrunSize[] = "SLURM_STEP_NUM_TASKS";
// PMIx's names of a job and of a rank in it.
constexpr char kPmixJob[] = "PMIX_NAMESPACE", kPmixRank[] = "PMIX_RANK";

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

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "" if it is not there.
std::string Variable(const std::string& environment, absl::string_view name) {
  for (const absl::string_view variable : absl::StrSplit(environment, '\0')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(variable, absl::MaxSplits('=', 1));
    if (pair.first == name) return std::string(pair.second);
  }
  return "";
}

// Of lines such as "State:\tT (stopped)".
bool IsStopped(const fs::path& process) {
  return absl::StrContains(Read(process / "status"), "\nState:\tT");
}

bool HasCome(const fs::path& process) {
  std::error_code gone;
  for (fs::directory_iterator thread(process / "task", gone), end; !gone && thread != end;
       thread.increment(gone)) {
    if (Read(thread->path() / "comm") == absl::StrCat(kMeetingThread, "\n")) return true;
  }
  return false;
}

// A rank may be several processes: a shell, and the program that it runs.
struct Seen {
  std::string process;
  bool stopped = false, has_come = false;
};

std::map<int, Seen> SeenRanks(const std::string& job) {
  std::map<int, Seen> ranks;
  std::error_code gone;
  for (fs::directory_iterator process("/proc", gone), end; !gone && process != end;
       process.increment(gone)) {
    const std::string environment = Read(process->path() / "environ");
    int rank = 0;
    if (Variable(environment, kPmixJob) != job ||
        !absl::SimpleAtoi(Variable(environment, kPmixRank), &rank)) {
      continue;
    }
    const bool stopped = IsStopped(process->path()), has_come = HasCome(process->path());
    Seen& seen = ranks[rank];
    if (seen.process.empty() || stopped || has_come) seen.process = process->path().filename();
    seen.stopped |= stopped;
    seen.has_come |= has_come;
  }
  return ranks;
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

AbsentRanks FindAbsentRanks() {
  const char* const job = std::getenv(kPmixJob);
  if (job == nullptr) return {};
  std::vector<std::string> stopped, late;
  for (const auto& [rank, seen] : SeenRanks(job)) {
    const std::string name = absl::StrCat("rank ", rank, " (process ", seen.process, ") ");
    if (seen.stopped) {
      stopped.push_back(absl::StrCat(name, "is stopped"));
    } else if (!seen.has_come) {
      late.push_back(absl::StrCat(name, "has not come to MPI_Init"));
    }
  }
  return {.stopped = absl::StrJoin(stopped, ", "), .late = absl::StrJoin(late, ", ")};
}

}  // namespace gyre
