// optimizer_slots.h: an optimizer's state, and the tiles into which a plan that pages cuts it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/reduction.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/math.h"

namespace gyre {

// A flat array for each bucket and kind, such as momentum, over the range that this rank updates.
// Arrays are of AccumulateDType.  A bucket of 16 bits also has an array of masters.
struct OptimizerSlots {
  struct SlotBucket {
    int64_t elements = 0;
    DType dtype = DType::kF32;  // the bucket's
    // Of a tile, a state that is updated in a step of its own.  The last may be smaller.  A tile is
    // whole pages, so arrays that do not page are contiguous.
    int64_t tile_elements = elements;
  };
  std::vector<std::string> names = {};  // of the kinds
  std::vector<SlotBucket> buckets = {};

  DType dtype(size_t bucket) const { return AccumulateDType(buckets[bucket].dtype); }
  bool has_master(size_t bucket) const { return dtype(bucket) != buckets[bucket].dtype; }
  int kinds() const { return static_cast<int>(names.size()); }
  int arrays(size_t bucket) const { return kinds() + (has_master(bucket) ? 1 : 0); }
  size_t bytes(size_t bucket) const {  // of one kind
    return static_cast<size_t>(buckets[bucket].elements) * SizeOf(dtype(bucket));
  }
  int tiles(size_t bucket) const {
    const auto& [elements, dtype, of_tile] = buckets[bucket];
    return elements == 0 ? 1 : static_cast<int>(CeilDiv(elements, of_tile));
  }
  ElementRange tile(size_t bucket, int index) const {
    const auto& [elements, dtype, of_tile] = buckets[bucket];
    const int64_t begin = index * of_tile;
    return {begin, std::min(elements, begin + of_tile)};
  }
  // For people, after the bucket's name.
  std::string tile_name(size_t bucket, int index) const {
    return tiles(bucket) == 1 ? "" : absl::StrCat(", part ", index + 1, "/", tiles(bucket));
  }
  // Bytes that an update of `count` elements reads and writes.  It reads gradients, and values that
  // have no master.  It writes values, and reads and writes the arrays.
  size_t update_bytes(size_t bucket, int64_t count) const {
    const size_t values = (has_master(bucket) ? 2 : 3) * SizeOf(buckets[bucket].dtype);
    const size_t own = 2 * static_cast<size_t>(arrays(bucket)) * SizeOf(dtype(bucket));
    return static_cast<size_t>(count) * (values + own);
  }
};

}  // namespace gyre
