// server_shards.h: the shard of each rank of a parameter server, in which workers send gradients to
// owners, and owners values to all workers.
#pragma once

#include "distributed/collectives/reduction.h"

namespace gyre {

// The fraction that each of `dedicated` > 0 servers owns beside `workers` > 0.  If servers are
// fewer, a server's link carries 5/6 of a worker's (docs/algorithms.md).  Otherwise they own all.
// Source: after Jiang et al. 2020, "BytePS", section 4.1, where all links carry the same.
double DedicatedFraction(int workers, int dedicated);

// The shard of `rank`.  Ranks below `workers` > 0 are workers, the next `dedicated` are servers.
// Shards are contiguous, in the order of ranks, and equal within workers and within servers.
ElementRange ServerShard(int64_t elements, int workers, int dedicated, int rank);

}  // namespace gyre
