// cgroup.h: what memory the control groups of a container, job or service leave this process.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace gyre {

// The least limit of the process's group and those above it, in bytes; none where none is set.
// groups: /proc/self/cgroup, whose lines are "id:controllers:path"; root: /sys/fs/cgroup.  Versions
// 1 (a folder a controller) and 2.  What cannot be read sets no limit: in a container the path is
// often the host's, and only the root is there.
std::optional<size_t> CgroupMemoryLimit(const std::string& groups = "/proc/self/cgroup",
                                        const std::string& root = "/sys/fs/cgroup");

}  // namespace gyre
