#include "engine/runtime/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"

namespace gyre {
namespace {

// The first number of a file; 0 where there is none, such as in "max", version 2's word for no
// limit.  Version 1 has -1, or a number beyond any machine.
double Number(const std::string& path) {
  double number = 0;
  std::ifstream(path) >> number;
  return number;
}

// Calls visit(folder, version) with the controller's folders, from those of the process's groups up
// to the root.
template <typename Visit>
void VisitFolders(const ControlGroups& groups, const std::string& controller, Visit visit) {
  std::ifstream lines(groups.list);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const int version = parts[1].empty() ? 2 : 1;
    if (version == 1 && std::ranges::find(controllers, controller) == controllers.end()) continue;
    const std::string root = version == 2 ? groups.root : groups.root + "/" + controller;
    std::string group = parts[2] == "/" ? "" : parts[2];
    while (true) {
      visit(root + group, version);
      if (group.empty()) break;
      group.resize(group.rfind('/'));
    }
  }
}

}  // namespace

size_t MemoryBytes(const ControlGroups& groups) {
  size_t least =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  VisitFolders(groups, "memory", [&](const std::string& folder, int version) {
    const double bytes = Number(folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (bytes > 0 && bytes < static_cast<double>(least)) least = static_cast<size_t>(bytes);
  });
  return least;
}

int Cores(const ControlGroups& groups) {
  // hardware_concurrency counts cores that this process may not use.
  cpu_set_t allowed;
  double least = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                     ? CPU_COUNT(&allowed)
                     : std::thread::hardware_concurrency();
  VisitFolders(groups, "cpu", [&](const std::string& folder, int version) {
    // Microseconds of processor time in each period.
    double quota = 0, period = 0;
    if (version == 2) {
      std::ifstream(folder + "/cpu.max") >> quota >> period;
    } else {
      quota = Number(folder + "/cpu.cfs_quota_us");
      period = Number(folder + "/cpu.cfs_period_us");
    }
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  });
  return std::max(1, static_cast<int>(std::ceil(least)));
}

}  // namespace gyre
