// machine.h: what of this machine the process may use: its cores and memory, as far as the control
// groups of a container, job or service leave them.
#pragma once

#include <cstddef>
#include <string>

namespace gyre {

// Versions 1 (a folder a controller) and 2.  The least limit counts of the process's group and
// those above it.  What cannot be read sets none: in a container the path is often the host's, and
// only the root is there.
struct ControlGroups {
  std::string list = "/proc/self/cgroup";  // lines "id:controllers:path"
  std::string root = "/sys/fs/cgroup";
};

// Bytes of memory.
size_t MemoryBytes(const ControlGroups& groups = {});

// Cores that the calling thread may run on, at most the groups' share of processor time, rounded
// up: a part of a core is better than none.  At least 1.
int Cores(const ControlGroups& groups = {});

}  // namespace gyre
