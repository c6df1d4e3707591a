// agreement.cc: see agreement.h.

#include "distributed/agreement.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// FNV-1a: std::hash and absl::Hash may differ between processes.
uint64_t Fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace

void Agreement::Start(std::string_view what, std::string_view content) {
  known_ = {};
  known_.lowest.rank = communicator_.rank();
  known_.lowest.hash = Fnv1a(content, Fnv1a(what));
  std::memcpy(known_.lowest.what, what.data(),
              std::min(what.size(), sizeof(known_.lowest.what) - 1));
  distance_ = 1;
  exchanging_ = false;
}

// Dissemination, as in Barrier: after the round of distance d a rank knows of itself and the 2d - 1
// ranks below it.  ceil(lg ranks) rounds of one 224-byte message; nobody waits for a root.
absl::StatusOr<Advance> Agreement::Progress() {
  const int ranks = communicator_.size(), rank = communicator_.rank();
  if (distance_ >= ranks) {
    RETURN_IF_ERROR(Verdict());
    return Advance::kDone;
  }
  if (!exchanging_) {
    outgoing_ = known_;
    ASSIGN_OR_RETURN(receive_,
                     communicator_.Receive(&incoming_, sizeof(incoming_),
                                           (rank + ranks - distance_) % ranks, kAgreementTag));
    ASSIGN_OR_RETURN(send_, communicator_.Send(&outgoing_, sizeof(outgoing_),
                                               (rank + distance_) % ranks, kAgreementTag));
    exchanging_ = true;
    send_done_ = receive_done_ = false;
    return Advance::kMoved;
  }
  if (!receive_done_) {
    ASSIGN_OR_RETURN(receive_done_, communicator_.Test(receive_));
  }
  if (!send_done_) {
    ASSIGN_OR_RETURN(send_done_, communicator_.Test(send_));
  }
  if (!receive_done_ || !send_done_) return Advance::kWaiting;
  known_ = Merge(known_, incoming_);
  distance_ *= 2;
  exchanging_ = false;
  return Advance::kMoved;
}

// The sets may overlap: both fields are minima over the union, whatever the order of merging.
Agreement::Knowledge Agreement::Merge(const Knowledge& a, const Knowledge& b) {
  const bool a_lower = a.lowest.rank <= b.lowest.rank;
  const Knowledge& low = a_lower ? a : b;
  const Knowledge& high = a_lower ? b : a;
  Knowledge merged = low;
  const Claim& candidate = high.lowest.hash == low.lowest.hash ? high.differing : high.lowest;
  if (candidate.rank >= 0 &&
      (merged.differing.rank < 0 || candidate.rank < merged.differing.rank)) {
    merged.differing = candidate;
  }
  return merged;
}

absl::Status Agreement::Verdict() const {
  const Claim& zero = known_.lowest;
  const Claim& other = known_.differing;
  if (other.rank < 0) return absl::OkStatus();
  if (std::strcmp(zero.what, other.what) == 0) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", other.rank, " is the first whose ",
                                                      zero.what, " differs from rank 0's"));
  }
  return absl::FailedPreconditionError(absl::StrCat("ranks disagree: rank 0 is at ", zero.what,
                                                    ", rank ", other.rank, " at ", other.what));
}

}  // namespace gyre
