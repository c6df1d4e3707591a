// optimizer_slots.h: the state of an optimizer, and the tiles that a plan which pages cuts it into.
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

// Of each kind (momentum) a flat array a bucket, for what this rank updates, of AccumulateDType of
// the bucket's type; and beside those of 16 bits such a one of masters.
struct OptimizerSlots {
  std::vector<std::string> names = {};  // of the kinds
  std::vector<int64_t> elements = {};   // by bucket
  std::vector<DType> dtypes = {};       // the buckets' own
  // By bucket: of each array so many are a state of their own, and updated in a step of their own;
  // the last may be fewer.  Their bytes are whole pages, so arrays that do not page are in one
  // piece.  Empty: all is.
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
  // For people: which of its bucket a tile is, behind the bucket's name.
  std::string tile_name(size_t bucket, int index) const;
  // That an update of so many reads and writes: gradients and, where there is no master, values in;
  // values out; the rest both ways.
  size_t update_bytes(size_t bucket, int64_t count) const {
    const size_t values = (has_master(bucket) ? 2 : 3) * SizeOf(dtypes[bucket]);
    const size_t own = 2 * static_cast<size_t>(arrays(bucket)) * SizeOf(dtype(bucket));
    return static_cast<size_t>(count) * (values + own);
  }
};

// Adds its states to a trace.  By bucket, then kind, then tile; then its master's tiles.
std::vector<std::vector<int>> AddSlots(const OptimizerSlots& slots, bool pinned,
                                       AccessTrace& trace);

}  // namespace gyre
