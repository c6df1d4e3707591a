// exchange.h: bytes of any length from ranks to others, such as files, as a state machine.
//
// Only sender and receiver name the transfer, and a rank without one is done at once.  The length
// precedes the bytes, so the receiver need not know it.  One that does may name the memory.  Used
// by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/collectives/collective.h"

namespace gyre {

// The transfers of one rank, at most one each way between two ranks.
struct Mail {
  struct Outgoing {
    int to;
    std::string_view bytes;
  };
  struct Incoming {
    int from;
    std::string bytes = {};     // set when the exchange is done, unless `into` has room
    std::span<char> into = {};  // receives the bytes in place; as long as they are
  };
  std::vector<Outgoing> outgoing = {};
  std::vector<Incoming> incoming = {};
};

class Exchange final : public Collective {
 public:
  using Collective::Collective;

  // Sets the mail of the next operation.  It and its bytes must live until that is done.
  void Carry(Mail* mail) { mail_ = mail; }

 private:
  // Segment 0 is the length, and the others follow.
  struct PeerTransfer {
    int peer;
    uint64_t length = 0;
    char* data = nullptr;
    Mail::Incoming* arriving =
        nullptr;  // gets its memory once the length has arrived; null: a send
    MessageWindow segments = {};
  };

  absl::Status Begin() override;
  absl::StatusOr<Advance> Step() override;
  static int64_t Segments(const PeerTransfer& transfer);
  absl::Status MakeRoom(PeerTransfer& transfer);
  absl::StatusOr<Request> PostSegment(PeerTransfer& transfer, int64_t segment);

  Mail* mail_ = nullptr;
  std::vector<PeerTransfer> transfers_;
  uint64_t arrived_ = 0;  // bytes of all lengths that have arrived
};

}  // namespace gyre
