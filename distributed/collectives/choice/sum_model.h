// sum_model.h: the expected time of a sum, by algorithm, bytes and shape of the cluster.  It adds
// the costs of messages, of bytes over a host's link, and of additions.  Pure functions.
// docs/algorithms.md has the formulas.
#pragma once

#include <span>
#include <string_view>

namespace gyre {

struct ClusterShape {
  int ranks = 1, hosts = 1;
  bool operator==(const ClusterShape&) const = default;
};

// In seconds.  The defaults are those of hosts as in docs/benchmarks/ranks.md, with TCP over 10
// Gbit/s between them.
struct LinkCosts {
  double start = 2.5e-6, byte = 0.5e-9;  // a message between two ranks of a host, and its bytes
  double start_between = 30e-6, byte_between = 0.85e-9;  // likewise between two hosts
  double wait = 0.5e-6, shared_byte = 0.15e-9;  // a wait for the ranks of a host, and a byte added
                                                // in their shared memory
  double each = 1e-6;     // added by each message of a rank that sends many at once
  double added_byte = 0;  // a received byte, added; 0: hidden by the next message
};

// Algorithms that `auto` may choose, in order of preference for equal times.
std::span<const std::string_view> ChosenSums();
// Whether it is one of these, or "naive".
bool IsModelled(std::string_view algorithm);

// Time of a sum of `bytes`, linear in them, with equally many ranks on each host.  Infinite if the
// algorithm does not fit the cluster, or is a detour to another.  Precondition: IsModelled.
double SumSeconds(std::string_view algorithm, double bytes, ClusterShape shape,
                  const LinkCosts& costs);

}  // namespace gyre
