// sum_model.h: what a sum over ranks is expected to take, by its algorithm, its bytes and the shape
// of the cluster: the messages, the bytes over a host's link and what is added, each by what it
// costs.  Pure functions; docs/algorithms.md has the formulas.
#pragma once

#include <span>
#include <string_view>

namespace gyre {

struct ClusterShape {
  int ranks = 1, hosts = 1;
};

// Seconds.  What these are by default is of hosts as docs/benchmarks/ranks.md has them, and of TCP
// over 10 Gbit/s between them.
struct LinkCosts {
  double start = 2.5e-6, byte = 0.5e-9;  // of a message between two ranks of a host; of its bytes
  double start_between = 30e-6, byte_between = 0.85e-9;  // likewise between two hosts
  double wait = 0.5e-6, shared_byte = 0.15e-9;  // for the ranks of a host; a byte added in memory
                                                // that they share
  double each = 1e-6;     // what each message of a rank that sends many at once adds
  double added_byte = 0;  // a byte of a message, added; 0: that is hidden under the next one's way
};

// Those that the model has; of two that are as good, the first is to be chosen.
std::span<const std::string_view> ModelledSums();

// Of `bytes` over the ranks, which hosts have equally many of.  A line: so much whatever the bytes,
// and so much for each.  Infinite where the algorithm is not for such a cluster, or is another's
// with detours.  Precondition: the model has the algorithm.
double SumSeconds(std::string_view algorithm, double bytes, ClusterShape shape,
                  const LinkCosts& costs);

}  // namespace gyre
