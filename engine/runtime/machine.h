// machine.h: the cores and memory that the control groups of a container or job leave this process.
#pragma once

#include <cstddef>
#include <string>

namespace gyre {

// Control groups of version 1 (a folder for each controller) and 2.  The least limit of the
// process's group and those above it counts.  An unreadable file sets none.  In a container the
// path is often the host's, and only the root is there.
struct ControlGroups {
  std::string list = "/proc/self/cgroup";  // lines "id:controllers:path"
  std::string root = "/sys/fs/cgroup";
};

size_t MemoryBytes(const ControlGroups& groups = {});

// Returns the cores that the calling thread may run on, at most the groups' share of processor
// time.  Rounded up, as a part of a core is better than none, and at least 1.
int Cores(const ControlGroups& groups = {});

}  // namespace gyre
