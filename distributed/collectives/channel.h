// channel.h: the messages of one collective, in a tag of its own.
//
// Ahead of the first bytes that an operation sends to a peer goes its claim; the peer compares it
// with its own.  So ranks that mean different things find out by a message of the operation itself,
// and no round of messages has to come first.
// Used by one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/transport/communicator.h"

namespace gyre {

// What an operation is: the same on all ranks, or an error on all.
struct Claim {
  int64_t sequence = 0;             // which operation of its group
  uint64_t hash = 0;                // of all of what it is
  std::array<char, 112> what = {};  // for people, cut to fit

  static Claim Of(int64_t sequence, std::string_view what);
  // The same, done in this way.
  Claim By(std::string_view how) const;
};

// OK if the claims of two ranks are the same; else FailedPrecondition with both labels.
absl::Status Compare(const Claim& mine, int rank, const Claim& theirs, int peer);

// FNV-1a, which is the same in all processes.
uint64_t Hash(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);

class Channel {
 public:
  // The communicator must outlive this.
  Channel(Communicator& communicator, int tag);

  Communicator& communicator() const { return communicator_; }
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  const Claim& claim() const { return claim_; }

  // Begins an operation.  Precondition: the one before is settled.
  void Open(const Claim& claim);

  // Sends the claim to the next rank and asks for that of the one before, round all of them: for
  // algorithms without messages between ranks that may differ.
  absl::Status Announce();
  // As the communicator's.  Test's errors: also Compare's, told to all ranks.
  absl::StatusOr<Request> Send(const void* data, size_t bytes, int to);
  absl::StatusOr<Request> Receive(void* data, size_t bytes, int from);
  absl::StatusOr<bool> Test(Request request);
  // True once every claim has gone and come.  Errors: as Test's.
  absl::StatusOr<bool> Settled();

 private:
  struct Peer {
    bool claimed = false, heard = false;  // a claim to it was sent, one from it asked for
    Claim theirs;
  };
  struct PendingClaim {
    Request request;
    int from;  // -1: a send
  };

  absl::Status ClaimTo(int to);
  absl::Status HearFrom(int from);

  Communicator& communicator_;
  const int tag_;
  Claim claim_;
  std::vector<Peer> peers_;            // by rank
  std::vector<PendingClaim> pending_;  // claims under way
};

}  // namespace gyre
