// update_tiles.h: cuts updates, so that layers alone set the least device memory.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/training/net/plan/net_trace.h"

namespace gyre {

// Returns OptimizerSlots::tile_elements.  A bucket has the fewest tiles, up to kMostTiles, for
// which an update touches no more than the largest other step.  It has kMostTiles if its gradient
// and parameters alone exceed that.  A table's bucket is not cut, as its update visits all rows.
// Precondition: the trace is of a training net of one rank, with uncut updates.
inline constexpr int kMostTiles = 32;
std::vector<int64_t> UpdateTiles(const NetTrace& trace, const OptimizerSlots& slots,
                                 const GradientOrder& order, const ParameterSet& parameters,
                                 std::span<const TouchedTable> tables);

}  // namespace gyre
