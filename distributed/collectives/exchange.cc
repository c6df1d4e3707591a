#include "distributed/collectives/exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/machine.h"

namespace gyre {

absl::Status Exchange::Begin() {
  Mail* const mail = std::exchange(mail_, nullptr);
  GYRE_CHECK(mail != nullptr && operation_ == Operation::kExchange);
  ways_.clear();
  ways_.reserve(mail->outgoing.size() +
                mail->incoming.size());  // lengths travel from where they are
  for (const auto& [to, bytes] : mail->outgoing) {
    GYRE_CHECK(to != rank_);
    // Sends do not write.
    ways_.push_back({.peer = to, .length = bytes.size(), .data = const_cast<char*>(bytes.data())});
  }
  for (auto& [from, bytes] : mail->incoming) {
    GYRE_CHECK(from != rank_);
    ways_.push_back({.peer = from, .arriving = &bytes});
  }
  return absl::OkStatus();
}

absl::StatusOr<Advance> Exchange::Step() {
  bool moved = false, done = true;
  for (Way& way : ways_) {
    ASSIGN_OR_RETURN(const bool went, Go(way));
    moved |= went;
    done &= way.done == Segments(way);
  }
  if (done) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kWaiting;
}

// As far as is known: until the length is there, which may be on its way, nobody knows of more.
size_t Exchange::Segments(const Way& way) {
  if (way.arriving != nullptr && way.done == 0) return 1;
  return 1 + (way.length + kSegmentBytes - 1) / kSegmentBytes;
}

absl::StatusOr<bool> Exchange::Go(Way& way) {
  bool moved = false;
  for (; way.done < way.posted; ++way.done) {
    ASSIGN_OR_RETURN(const bool over, channel_.Test(way.requests.front()));
    if (!over) break;
    way.requests.pop_front();
    moved = true;
    if (way.done > 0 || way.arriving == nullptr) continue;
    if (way.length > MemoryBytes()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rank ", channel_.communicator().in_job(way.peer), " sends ", way.length,
                       " bytes, more than the ", MemoryBytes(), " of this host's memory"));
    }
    way.arriving->resize(way.length);
    way.data = way.arriving->data();
  }
  for (; way.posted < std::min(Segments(way), way.done + kWindow); ++way.posted) {
    RETURN_IF_ERROR(Post(way));
    moved = true;
  }
  return moved;
}

absl::Status Exchange::Post(Way& way) {
  char* data = reinterpret_cast<char*>(&way.length);
  size_t bytes = sizeof(way.length);
  if (way.posted > 0) {
    const size_t begin = (way.posted - 1) * kSegmentBytes;
    data = way.data + begin;
    bytes = std::min(kSegmentBytes, way.length - begin);
  }
  ASSIGN_OR_RETURN(way.requests.emplace_back(), way.arriving != nullptr
                                                    ? channel_.Receive(data, bytes, way.peer)
                                                    : channel_.Send(data, bytes, way.peer));
  return absl::OkStatus();
}

}  // namespace gyre
