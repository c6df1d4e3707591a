// exchange.h: bytes from ranks to others, of any length, as a state machine: what is no tensor and
// no sum, such as files.
//
// Who sends to whom is said by the two alone; a rank that does neither is done at once.  Ahead of
// the bytes goes their length, so that the other need not know it.  Used by one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/collectives/collective.h"

namespace gyre {

// What a rank sends and what it is sent: at most one piece each way between two ranks.
struct Mail {
  struct Outgoing {
    int to;
    std::string_view bytes;
  };
  struct Incoming {
    int from;
    std::string bytes = {};  // once it is done
  };
  std::vector<Outgoing> outgoing = {};
  std::vector<Incoming> incoming = {};
};

class Exchange final : public Collective {
 public:
  using Collective::Collective;

  // Of the operation that is started next; must live until that is done, its bytes too.
  void Carry(Mail* mail) { mail_ = mail; }

 private:
  static constexpr size_t kWindow = 4;  // segments under way to or from a rank

  // Segment 0 is the length, the others follow.
  struct PeerTransfer {
    int peer;
    uint64_t length = 0;
    char* data = nullptr;
    std::string* arriving = nullptr;  // into which it grows, once the length is there; null: sent
    size_t posted = 0, done = 0;      // segments
    std::deque<Request> requests = {};
  };

  absl::Status Begin() override;
  absl::StatusOr<Advance> Step() override;
  static size_t Segments(const PeerTransfer& transfer);
  absl::Status Post(PeerTransfer& transfer);
  absl::StatusOr<bool> Go(PeerTransfer& transfer);  // whether it did anything

  Mail* mail_ = nullptr;
  std::vector<PeerTransfer> transfers_;
};

}  // namespace gyre
