// exchange.h: messages from all ranks to all ranks, in host memory, which a service drives.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "distributed/parameter_server/transfer.h"
#include "distributed/transport/communicator.h"

namespace gyre {

// After the tags of the process group's operations.  Tags of accesses follow it.
inline constexpr int kExchangeTag = kFirstOperationTag + 64;

// The span of each rank in host memory.  The length of a rank's span is the same on all ranks.
using PlaceOfRank = std::function<std::span<std::byte>(int rank)>;

// Sends each rank's span to all others, as a state machine.
class Giving {
 public:
  // Precondition: !under_way().  The memory stays valid until Progress returns true.
  absl::Status Begin(Communicator& communicator, const PlaceOfRank& at);
  bool under_way() const { return !transfers_.empty(); }
  // Returns true once, when it is done.  Never blocks.  Errors: those of Communicator::Test.
  absl::StatusOr<bool> Progress(Communicator& communicator);
  // A rank whose span has not arrived, or kNobody.
  int AwaitedRank() const;

 private:
  struct Message {
    int sender = kNobody;
    Transfer transfer;
  };
  std::vector<Message> transfers_;
};

}  // namespace gyre
