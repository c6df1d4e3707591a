#include "distributed/transport/rank_processes.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// PMIx's names of a job and of a rank in it.
constexpr char kJob[] = "PMIX_NAMESPACE", kRank[] = "PMIX_RANK";

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
    if (Variable(environment, kJob) != job ||
        !absl::SimpleAtoi(Variable(environment, kRank), &rank)) {
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

AbsentRanks FindAbsentRanks() {
  const char* const job = std::getenv(kJob);
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
