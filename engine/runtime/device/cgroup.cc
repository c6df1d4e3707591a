#include "engine/runtime/device/cgroup.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/str_split.h"

namespace gyre {

std::optional<size_t> CgroupMemoryLimit(const std::string& groups, const std::string& root) {
  std::optional<size_t> least;
  // The files from a group's folder up to the controller's.
  const auto visit = [&](const std::string& controller, std::string group, const char* file) {
    while (true) {
      size_t bytes = 0;
      // Version 2 says "max" for no limit, version 1 a number beyond any memory.
      if (std::ifstream(controller + group + "/" + file) >> bytes) {
        least = std::min(bytes, least.value_or(bytes));
      }
      if (group.empty()) return;
      group.resize(group.rfind('/'));
    }
  };
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::string group = parts[2] == "/" ? "" : parts[2];
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      visit(root, group, "memory.max");
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      visit(root + "/memory", group, "memory.limit_in_bytes");
    }
  }
  return least;
}

}  // namespace gyre
