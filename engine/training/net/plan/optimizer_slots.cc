#include "engine/training/net/plan/optimizer_slots.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gyre {

std::string OptimizerSlots::tile_name(size_t bucket, int index) const {
  return tiles(bucket) == 1 ? "" : absl::StrCat(", part ", index + 1, "/", tiles(bucket));
}

std::vector<int> AddSlots(const OptimizerSlots& slots, size_t bucket, bool pinned,
                          AccessTrace& trace) {
  std::vector<int> states;
  for (int array = 0; array < slots.arrays(bucket); ++array) {
    const std::string what =
        array < slots.kinds() ? absl::StrReplaceAll(slots.names[array], {{"_", " "}}) : "masters";
    for (int tile = 0; tile < slots.tiles(bucket); ++tile) {
      states.push_back(trace.Add(
          {.name = absl::StrCat(what, " of bucket ", bucket, slots.tile_name(bucket, tile)),
           .bytes =
               static_cast<size_t>(slots.tile(bucket, tile).count()) * SizeOf(slots.dtype(bucket)),
           .persistent = true,
           .pinned = pinned}));
    }
  }
  return states;
}

}  // namespace gyre
