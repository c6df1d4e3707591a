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
  transfers_.clear();
  arrived_ = 0;
  transfers_.reserve(mail->outgoing.size() +
                     mail->incoming.size());  // lengths travel from where they are
  for (const auto& [to, bytes] : mail->outgoing) {
    GYRE_CHECK(to != rank_);
    // Sends do not write.
    transfers_.push_back(
        {.peer = to, .length = bytes.size(), .data = const_cast<char*>(bytes.data())});
  }
  for (Mail::Incoming& incoming : mail->incoming) {
    GYRE_CHECK(incoming.from != rank_);
    transfers_.push_back({.peer = incoming.from, .arriving = &incoming});
  }
  return absl::OkStatus();
}

absl::StatusOr<Advance> Exchange::Step() {
  bool moved = false, done = true;
  for (PeerTransfer& transfer : transfers_) {
    ASSIGN_OR_RETURN(const bool went, Go(transfer));
    moved |= went;
    done &= transfer.done == Segments(transfer);
  }
  if (done) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kWaiting;
}

// As far as is known: until the length is there, which may be on its way, nobody knows of more.
size_t Exchange::Segments(const PeerTransfer& transfer) {
  if (transfer.arriving != nullptr && transfer.done == 0) return 1;
  return 1 + (transfer.length + kSegmentBytes - 1) / kSegmentBytes;
}

absl::StatusOr<bool> Exchange::Go(PeerTransfer& transfer) {
  bool moved = false;
  for (; transfer.done < transfer.posted; ++transfer.done) {
    ASSIGN_OR_RETURN(const bool over, channel_.Test(transfer.requests.front()));
    if (!over) break;
    transfer.requests.pop_front();
    moved = true;
    if (transfer.done > 0 || transfer.arriving == nullptr) continue;
    arrived_ += std::min<uint64_t>(transfer.length, MemoryBytes() + 1);
    if (arrived_ > MemoryBytes()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rank ", channel_.in_job(transfer.peer), " sends ", transfer.length,
                       " bytes, more than the ", MemoryBytes(), " of this host's memory"));
    }
    const std::span<char> into = transfer.arriving->into;
    if (into.empty()) {
      transfer.arriving->bytes.resize(transfer.length);
      transfer.data = transfer.arriving->bytes.data();
    } else if (transfer.length == into.size()) {
      transfer.data = into.data();
    } else {
      return absl::InternalError(absl::StrCat("rank ", channel_.in_job(transfer.peer), " sends ",
                                              transfer.length, " bytes, expected ", into.size()));
    }
  }
  for (; transfer.posted < std::min(Segments(transfer), transfer.done + kWindow);
       ++transfer.posted) {
    RETURN_IF_ERROR(Post(transfer));
    moved = true;
  }
  return moved;
}

absl::Status Exchange::Post(PeerTransfer& transfer) {
  char* data = reinterpret_cast<char*>(&transfer.length);
  size_t bytes = sizeof(transfer.length);
  if (transfer.posted > 0) {
    const size_t begin = (transfer.posted - 1) * kSegmentBytes;
    data = transfer.data + begin;
    bytes = std::min(kSegmentBytes, transfer.length - begin);
  }
  ASSIGN_OR_RETURN(transfer.requests.emplace_back(),
                   transfer.arriving != nullptr ? channel_.Receive(data, bytes, transfer.peer)
                                                : channel_.Send(data, bytes, transfer.peer));
  return absl::OkStatus();
}

}  // namespace gyre
