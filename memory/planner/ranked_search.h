// ranked_search.h: searches for the number of ranked candidates that is best.  Private to memory.
#pragma once

#include <cstddef>

namespace gyre {

// Longer iterations get one try where others get many, so that 10,000 steps are planned in seconds.
inline constexpr size_t kManySteps = 2000;

// Calls consider(n), which returns whether the first n of `count` candidates are the best so far.
// First come the multiples of count / shares, then numbers ever nearer to the best.  A number may
// come twice or be out of range.  Returns the best, or 0.
template <typename Consider>
int SearchCount(int count, int shares, const Consider& consider) {
  int best = 0;
  const auto attempt = [&](int n) {
    if (consider(n)) best = n;
  };
  for (int share = 1; share <= shares; ++share) attempt(count * share / shares);
  for (int step = count / shares / 2; step > 0; step /= 2) {
    const int around = best;
    attempt(around - step);
    attempt(around + step);
  }
  return best;
}

}  // namespace gyre
