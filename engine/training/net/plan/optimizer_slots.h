// optimizer_slots.h: an optimizer's state, and the tiles into which a plan that pages cuts it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/collectives/reduction.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/math.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// A flat array for each bucket and kind, such as momentum, over the range that this rank updates.
// Arrays are of AccumulateDType.  A bucket of 16 bits also has an array of masters.
struct OptimizerSlots {
  std::vector<std::string> names = {};  // of the kinds
  std::vector<int64_t> elements = {};   // by bucket
  std::vector<DType> dtypes = {};       // by bucket: the bucket's
  // By bucket: elements of a tile, a state that is updated in a step of its own.  The last may be
  // smaller.  A tile is whole pages, so arrays that do not page are contiguous.  Empty: one tile.
  std::vector<int64_t> tile_elements = {};

  DType dtype(size_t bucket) const { return AccumulateDType(dtypes[bucket]); }
  bool has_master(size_t bucket) const { return dtype(bucket) != dtypes[bucket]; }
  int kinds() const { return static_cast<int>(names.size()); }
  int arrays(size_t bucket) const { return kinds() + (has_master(bucket) ? 1 : 0); }
  size_t bytes(size_t bucket) const {  // of one kind
    return static_cast<size_t>(elements[bucket]) * SizeOf(dtype(bucket));
  }
  int tiles(size_t bucket) const {
    if (tile_elements.empty() || elements[bucket] == 0) return 1;
    return static_cast<int>(CeilDiv(elements[bucket], tile_elements[bucket]));
  }
  ElementRange tile(size_t bucket, int index) const {
    if (tiles(bucket) == 1) return {0, elements[bucket]};
    const int64_t begin = index * tile_elements[bucket];
    return {begin, std::min(elements[bucket], begin + tile_elements[bucket])};
  }
  // For people, after the bucket's name.
  std::string tile_name(size_t bucket, int index) const;
  // Bytes that an update of `count` elements reads and writes.  It reads gradients, and values that
  // have no master.  It writes values, and reads and writes the arrays.
  size_t update_bytes(size_t bucket, int64_t count) const {
    const size_t values = (has_master(bucket) ? 2 : 3) * SizeOf(dtypes[bucket]);
    const size_t own = 2 * static_cast<size_t>(arrays(bucket)) * SizeOf(dtype(bucket));
    return static_cast<size_t>(count) * (values + own);
  }
};

// Adds the arrays to a trace.  Returns states by bucket, then kind, then tile, with masters last.
std::vector<std::vector<int>> AddSlots(const OptimizerSlots& slots, bool pinned,
                                       AccessTrace& trace);

}  // namespace gyre
