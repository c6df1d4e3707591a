// exchange.h: what all ranks tell each other at once.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "distributed/parameter_server/transfer.h"
#include "distributed/transport/communicator.h"

namespace gyre {

// Beyond the tags of the process group's operations: of what is told at once; accesses have those
// that follow.
inline constexpr int kExchangeTag = kFirstOperationTag + 64;

// Each rank's place of memory that all have; at(r) is as long on all ranks.
using PlaceOfRank = std::function<std::span<std::byte>(int rank)>;

// Each rank's place, from that rank; as a state machine.
class Giving {
 public:
  // Precondition: none is under way.  The memory must stay until it is done.
  absl::Status Begin(Communicator& communicator, const PlaceOfRank& at);
  bool under_way() const { return !transfers_.empty(); }
  // True once, when it is done.  Never blocks.  Errors: Communicator::Test's, of a rank that does
  // not give.
  absl::StatusOr<bool> Progress(Communicator& communicator);
  // A rank whose place has not come; kNobody: none.
  int AwaitedRank() const;

 private:
  struct Message {
    int sender = kNobody;
    Transfer transfer;
  };
  std::vector<Message> transfers_;
};

// The same.  Blocks, for the time limit at most where a rank does not give.
absl::Status GiveAll(Communicator& communicator, const PlaceOfRank& at);

// What each rank has told, by rank.  Blocks.  Errors: ResourceExhausted for more than this host's
// memory; those of GiveAll.
absl::StatusOr<std::vector<std::vector<int64_t>>> TellAll(Communicator& communicator,
                                                          std::vector<int64_t> own);

}  // namespace gyre
