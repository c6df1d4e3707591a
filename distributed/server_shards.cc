#include "distributed/server_shards.h"

#include <cmath>

namespace gyre {
namespace {

// Of what a worker's link carries, what that of a rank that only serves does, of fewer such ranks
// than workers.  All workers wait for each, so that its link is not to be the one that is full:
// where both were, steps took up to 6 % longer (docs/benchmarks/server.md).
constexpr double kCarried = 5.0 / 6;

}  // namespace

// n workers own w each and k others d each, n w + k d = 1.  A worker sends 1 - w to owners and, as
// one, (n - 1) w to workers; the others send n d, which is kCarried (1 + (n - 2) w) where
//   d = 2 kCarried (n - 1) / (n^2 + kCarried k (n - 2)),
// but from k = n on workers own nothing, and send the most.
double DedicatedFraction(int workers, int dedicated) {
  const double n = workers, k = dedicated;
  if (dedicated >= workers) return 1 / k;
  return 2 * kCarried * (n - 1) / (n * n + kCarried * k * (n - 2));
}

ElementRange ServerShard(int64_t elements, int workers, int dedicated, int rank) {
  if (dedicated == 0) return EqualPart(elements, workers, rank);
  const int64_t of_others = std::llround(static_cast<double>(elements) * dedicated *
                                         DedicatedFraction(workers, dedicated));
  const int64_t of_workers = elements - of_others;
  if (rank < workers) return EqualPart(of_workers, workers, rank);
  const ElementRange part = EqualPart(of_others, dedicated, rank - workers);
  return {of_workers + part.begin, of_workers + part.end};
}

}  // namespace gyre
