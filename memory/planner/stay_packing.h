// stay_packing.h: assigns offsets to stays with known steps, in memory of a given size.  Private to
// memory.
//
// strip_packing.h minimizes the extent.  Here the extent is given, and an offset is better if the
// fetch can begin early and waits for no write-back.  A stay asks for its memory for longer than
// it must, and gets that or less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre {

struct PackedStay {
  size_t bytes = 0;
  int first = 0, last = 0;  // steps that need the memory
  int claim = 0, keep = 0;  // steps that should have it: claim <= first, last <= keep
  bool fetched = false;
  int written = -1;  // no fetch into the memory should be for a step up to this one
  size_t offset = 0;
};

enum class Wishes : uint8_t {
  kAll,       // claim and keep as asked, or it fails; `written` is ignored
  kMost,      // as many as possible
  kInMemory,  // as many as possible; `written` is ignored
  kNone,
};
inline constexpr Wishes kAllWishes[] = {Wishes::kAll, Wishes::kMost, Wishes::kInMemory,
                                        Wishes::kNone};

// Sets offsets in [begin, end), and claim and keep to the steps granted.  False: found none, though
// there may be some.  Cost: at most tries times stays^2 times steps.
// Source: squeaky wheel optimization (Joslin & Clements 1999), over first fit by size.
bool PackStays(size_t begin, size_t end, Wishes wishes, std::vector<PackedStay>& places);

}  // namespace gyre
