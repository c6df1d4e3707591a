// update_tiles.h: into how many steps each bucket's update is cut, so that what a device must hold
// at once is what the layers themselves need, not an update with all its state.  A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/training/net/plan/net_trace.h"

namespace gyre {

// OptimizerSlots::tile_elements.  Of each bucket as few as let an update touch no more than the
// largest of the other steps, but kMostTiles; an update whose gradient and parameter alone are more
// has so many.  A table's bucket stays whole: an update goes through all its rows.
// Precondition: the trace is of a training net of one rank, uncut.
inline constexpr int kMostTiles = 32;
std::vector<int64_t> UpdateTiles(const NetTrace& trace, const OptimizerSlots& slots,
                                 const GradientOrder& order, const ParameterSet& parameters,
                                 std::span<const TouchedTable> tables);

}  // namespace gyre
