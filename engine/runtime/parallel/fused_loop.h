// fused_loop.h: the loops of ForEachPart, and the table that hands them to a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gyre {

// The loop that calls f(i) for each i in [0, n).
template <typename F>
struct FusedLoop {
  int64_t n;
  F f;
};

namespace parallel_internal {

// A kernel's argument.  Before CUDA 12.1, and before Volta, a kernel's arguments had 4 KiB, later
// 32,764 bytes.  The table keeps to the smaller bound, and leaves some of it to others.
template <typename F>
struct PartTable {
  static constexpr int kMost =
      static_cast<int>(std::clamp<size_t>(4000 / sizeof(FusedLoop<F>), 1, 64));
  int count = 0;
  FusedLoop<F> parts[kMost];
};

}  // namespace parallel_internal
}  // namespace gyre
