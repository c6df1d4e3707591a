#include "engine/training/net/plan/optimizer_slots.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gyre {

std::string OptimizerSlots::tile_name(size_t bucket, int index) const {
  return tiles(bucket) == 1 ? "" : absl::StrCat(", part ", index + 1, "/", tiles(bucket));
}

std::vector<std::vector<int>> AddSlots(const OptimizerSlots& slots, bool pinned,
                                       AccessTrace& trace) {
  std::vector<std::vector<int>> states(slots.elements.size());
  for (size_t b = 0; b < states.size(); ++b) {
    for (int array = 0; array < slots.arrays(b); ++array) {
      const std::string what =
          array < slots.kinds() ? absl::StrReplaceAll(slots.names[array], {{"_", " "}}) : "masters";
      for (int tile = 0; tile < slots.tiles(b); ++tile) {
        states[b].push_back(trace.Add(
            {.name = absl::StrCat(what, " of bucket ", b, slots.tile_name(b, tile)),
             .bytes = static_cast<size_t>(slots.tile(b, tile).count()) * SizeOf(slots.dtype(b)),
             .persistent = true,
             .pinned = pinned}));
      }
    }
  }
  return states;
}

}  // namespace gyre
