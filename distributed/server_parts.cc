#include "distributed/server_parts.h"

#include <algorithm>
#include <cmath>

namespace gyre {

// n workers own w each and k others d each, n w + k d = 1.  A worker sends 1 - w to owners and, as
// one, (n - 1) w to workers; the others send n d: equal where n d = 1 + (n - 2) w, so that
//   d = 2 (n - 1) / (n^2 + k n - 2 k),
// but from k = n on workers own nothing, and send the most.
ElementRange ServerPart(int64_t elements, int workers, int dedicated, int rank) {
  if (dedicated == 0) return EqualPart(elements, workers, rank);
  const double n = workers, k = dedicated;
  int64_t of_others = elements;
  if (dedicated < workers) {
    of_others =
        std::llround(static_cast<double>(elements) * k * 2 * (n - 1) / (n * n + k * n - 2 * k));
    of_others = std::clamp<int64_t>(of_others, 0, elements);
  }
  const int64_t of_workers = elements - of_others;
  if (rank < workers) return EqualPart(of_workers, workers, rank);
  const ElementRange part = EqualPart(of_others, dedicated, rank - workers);
  return {of_workers + part.begin, of_workers + part.end};
}

}  // namespace gyre
