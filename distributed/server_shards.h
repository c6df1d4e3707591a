// server_shards.h: how much of what ranks share each of them owns.
#pragma once

#include "distributed/collectives/reduction.h"

namespace gyre {

// Of all that is shared, what each of `dedicated` ranks that only serve owns beside `workers`:
// such that its link carries no more than a worker's, of fewer servers than workers 5/6, where all
// workers send all that they do not own to its owner, and owners send it back to all
// (docs/algorithms.md).  Both > 0.
// Source: after Jiang et al. 2020, "BytePS", section 4.1, where all links carry the same.
double DedicatedFraction(int workers, int dedicated);

// The part of `elements` that `rank` owns, of workers 0, 1, ... and after them `dedicated` ranks
// that only serve.  Parts are contiguous, in the order of ranks; equal within a kind.  workers > 0.
ElementRange ServerShard(int64_t elements, int workers, int dedicated, int rank);

}  // namespace gyre
