// server_parts.h: how much of what ranks share each of them owns.
#pragma once

#include "distributed/collectives/reduction.h"

namespace gyre {

// The part of `elements` that `rank` owns, of workers 0, 1, ... and after them `dedicated` ranks
// that only serve: such that none sends more bytes than another, where all workers send all that
// they do not own to its owner, and owners send it back to all (docs/algorithms.md).  Parts are
// contiguous, in the order of ranks.  workers > 0.
// Source: Jiang et al. 2020, "BytePS", section 4.1.
ElementRange ServerPart(int64_t elements, int workers, int dedicated, int rank);

}  // namespace gyre
