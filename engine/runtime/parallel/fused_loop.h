// fused_loop.h: what ForEachPart is handed, and the form in which a GPU is.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gyre {

// One of the loops that run together: f(i) for each i in [0, n).
template <typename F>
struct FusedLoop {
  int64_t n;
  F f;
};

namespace parallel_internal {

// A kernel's arguments: 4 KiB of them are allowed, of which the table leaves some to others.
template <typename F>
struct PartTable {
  static constexpr int kMost =
      static_cast<int>(std::clamp<size_t>(4000 / sizeof(FusedLoop<F>), 1, 64));
  int count = 0;
  FusedLoop<F> parts[kMost];
};

}  // namespace parallel_internal
}  // namespace gyre
