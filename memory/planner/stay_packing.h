// stay_packing.h: addresses for stays whose steps are known ahead, in memory of a given size.
// Private to memory.
//
// strip_packing.h looks for the lowest extent; here that is given, and a place is worth more if a
// fetch can begin early and need not wait for a write-back.  Stays say for how long they should
// have their places, and get that or less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre {

struct PackedStay {
  size_t bytes = 0;
  int first = 0, last = 0;  // steps for which it must have its place
  int claim = 0, keep = 0;  // and should: claim <= first, last <= keep
  bool fetched = false;
  int written = -1;  // no fetch into the place should be for a step up to this one
  size_t offset = 0;
};

enum class Wishes : uint8_t {
  kAll,       // but `written`: or it does not fit
  kMost,      // as many as can be
  kInMemory,  // as many as can be, but `written`
  kNone,
};
inline constexpr Wishes kAllWishes[] = {Wishes::kAll, Wishes::kMost, Wishes::kInMemory,
                                        Wishes::kNone};

// Gives each an offset in [begin, end), and claim and keep as they are then.  False: it has found
// none, which does not mean that there are none.  Cost: tries times places^2 times steps, at most.
// Source: squeaky wheel optimization (Joslin & Clements 1999), over first fit by size.
bool PackStays(size_t begin, size_t end, Wishes wishes, std::vector<PackedStay>& places);

}  // namespace gyre
