// server_shards.h: the shard of each rank of a parameter server.
//
// Workers send all gradients that they do not own to the owners, who send values to all workers.
#pragma once

#include "distributed/collectives/reduction.h"

namespace gyre {

// Returns the fraction that each of `dedicated` servers owns beside `workers`, both above 0.
//   fewer servers than workers  a server's link carries 5/6 of a worker's (docs/algorithms.md)
//   others                      servers own all
// Source: after Jiang et al. 2020, "BytePS", section 4.1, where all links carry the same.
double DedicatedFraction(int workers, int dedicated);

// Returns the shard of `rank`.  Ranks below `workers` are workers, the next `dedicated` servers.
// Shards are contiguous, in the order of ranks, and equal within workers and within servers.
// Precondition: workers > 0.
ElementRange ServerShard(int64_t elements, int workers, int dedicated, int rank);

}  // namespace gyre
