// staleness.cc: the bound of bsp, ssp and async: when an owner may apply an update, and when it may
// answer a read.  A clock is the number of iterations whose updates are applied, for a chunk.
//
//   bsp    a read of iteration c has all updates of iterations before c, and no others
//   ssp    it has at least all of iterations before c - staleness
//   async  it has at least its own worker's of iterations before c, as the others do

#include <algorithm>
#include <limits>

#include "distributed/parameter_server/shard.h"

namespace gyre {

// Whoever reads here has an update here.
int64_t Shard::Clock(const TableChunk& chunk, int worker) const {
  int64_t clock = std::numeric_limits<int64_t>::max();
  for (const int update : chunk.updates) {
    const UpdateSlice& slice = updates_[update];
    if (worker == kNobody || slice.worker == worker) clock = std::min(clock, slice.applied);
  }
  return clock;
}

bool Shard::MayApply(const TableChunk& chunk, const UpdateSlice& slice) const {
  if (slice.received == slice.applied) return false;
  if (options_.sync != Sync::kBsp) return true;
  if (&updates_[chunk.updates[chunk.next]] != &slice) return false;
  if (chunk.applied < chunk.summed) return false;  // the sum's memory is in use
  // Nobody may read what is of this iteration in this iteration.
  return chunk.next + 1 < chunk.updates.size() || std::ranges::all_of(chunk.reads, [&](int read) {
           return reads_[read].gathered > slice.applied;
         });
}

bool Shard::MayAnswer(const TableChunk& chunk, const ReadSlice& slice) const {
  if (slice.gathered > slice.sent) return false;  // its memory is in use
  const int64_t clock = slice.gathered;           // of the iteration that reads
  if (Clock(chunk, slice.worker) < clock) return false;
  if (options_.gated && chunk.applied < clock) return false;
  if (options_.sync == Sync::kAsync) return true;
  return Clock(chunk, kNobody) >= clock - (options_.sync == Sync::kSsp ? options_.staleness : 0);
}

}  // namespace gyre
