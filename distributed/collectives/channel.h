// channel.h: the messages of one collective, with a tag of its own.
//
// An operation's claim precedes its first bytes to each peer, which compares it with its own.  A
// mismatch is thus found by a message of the operation itself, without an extra round.
// Used by one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/transport/communicator.h"

namespace gyre {

// The identity of an operation.  It is the same on all ranks, or an error on all.
struct Claim {
  int64_t sequence = 0;             // number of the operation in its group
  uint64_t hash = 0;                // of its full label
  std::array<char, 112> what = {};  // label for people, cut to fit

  static Claim Of(int64_t sequence, std::string_view what);
  // The same operation, by the named algorithm.
  Claim By(std::string_view how) const;
};

// OK if the claims of two ranks are equal.  Errors: FailedPrecondition with both labels.
absl::Status Compare(const Claim& mine, int rank, const Claim& theirs, int peer);

// FNV-1a, which gives the same hash in all processes.
uint64_t Hash(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);

class Channel {
 public:
  // Between `ranks` of the communicator, with this one, which are 0, 1, ... here.  Between all if
  // there are none.  The communicator outlives this object.  Between two ranks a tag must not serve
  // two channels at once.
  Channel(Communicator& communicator, int tag, std::vector<int> ranks = {});

  Communicator& communicator() const { return communicator_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  // The number of the rank in the whole job.
  int in_job(int rank) const { return peers_[rank].in_job; }
  const Claim& claim() const { return claim_; }

  // Begins an operation.  Precondition: the operation before is settled.
  void Open(const Claim& claim);

  // Sends the claim to the next rank and receives that of the rank before, in a ring of all ranks.
  // For algorithms in which two ranks that differ may exchange no message.
  absl::Status Announce();
  // As the communicator's.  Errors of Test: also those of Compare, told to all ranks.
  absl::StatusOr<Request> Send(const void* data, size_t bytes, int to);
  absl::StatusOr<Request> Receive(void* data, size_t bytes, int from);
  absl::StatusOr<bool> Test(Request request);
  // Returns true once all claims are sent and received.  Errors: as Test's.
  absl::StatusOr<bool> Settled();

 private:
  struct Peer {
    int in_job;
    bool claimed = false, heard = false;  // claim sent to it, claim requested from it
    Claim theirs = {};
  };
  struct PendingClaim {
    Request request;
    int from;  // -1: a send
  };

  absl::Status ClaimTo(int to);
  absl::Status HearFrom(int from);

  Communicator& communicator_;
  const int tag_;
  int rank_ = 0;
  Claim claim_;
  std::vector<Peer> peers_;            // by rank
  std::vector<PendingClaim> pending_;  // claims under way
};

}  // namespace gyre
