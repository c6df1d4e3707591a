// agreement.h: have all ranks come to the same point of the program with the same data in mind?
//
// Comes before every collective of the communication thread, because a collective between ranks
// that mean different things hangs or sums the wrong memory.  Its verdict is the same on all ranks.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "distributed/communicator.h"

namespace gyre {

class Agreement {
 public:
  // The communicator must outlive this.
  explicit Agreement(Communicator& communicator) : communicator_(communicator) {}

  // Begins comparing `what` (for people; its first 95 bytes appear in errors) and `content`.  One
  // at a time.
  void Start(std::string_view what, std::string_view content);
  // Advances; never blocks.  Errors: FailedPrecondition, the same on all ranks, if they differ,
  // with the `what` of rank 0 and of the first rank that differs from it.
  absl::StatusOr<Advance> Progress();

 private:
  struct Claim {
    int64_t rank = -1;  // none
    uint64_t hash = 0;
    char what[96] = {};
  };
  // What is known of a set of ranks: the claim of the lowest, and that of the lowest that differs
  // from it, if any.
  struct Knowledge {
    Claim lowest, differing;
  };

  static Knowledge Merge(const Knowledge& a, const Knowledge& b);
  absl::Status Verdict() const;

  Communicator& communicator_;
  Knowledge known_, outgoing_, incoming_;
  int distance_ = 1;
  bool exchanging_ = false;
  bool send_done_ = false, receive_done_ = false;
  Request send_ = 0, receive_ = 0;
};

}  // namespace gyre
