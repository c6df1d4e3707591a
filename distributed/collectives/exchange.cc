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
    const bool awaits_length = transfer.arriving != nullptr && transfer.segments.done == 0;
    ASSIGN_OR_RETURN(const bool ended, EndDone(transfer.segments));
    if (awaits_length && ended) RETURN_IF_ERROR(MakeRoom(transfer));
    ASSIGN_OR_RETURN(const bool begun,
                     BeginNext(transfer.segments, Segments(transfer),
                               [&](int64_t segment) { return PostSegment(transfer, segment); }));
    moved |= ended || begun;
    done &= transfer.segments.done == Segments(transfer);
  }
  if (done) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kWaiting;
}

// As far as is known: until the length is there, which may be on its way, nobody knows of more.
int64_t Exchange::Segments(const PeerTransfer& transfer) {
  if (transfer.arriving != nullptr && transfer.segments.done == 0) return 1;
  return static_cast<int64_t>(1 + (transfer.length + kSegmentBytes - 1) / kSegmentBytes);
}

absl::Status Exchange::MakeRoom(PeerTransfer& transfer) {
  arrived_ += std::min<uint64_t>(transfer.length, MemoryBytes() + 1);
  if (arrived_ > MemoryBytes()) {
    return absl::ResourceExhaustedError(absl::StrCat("rank ", InJob(transfer.peer), " sends ",
                                                     transfer.length, " bytes, more than the ",
                                                     MemoryBytes(), " of this host's memory"));
  }
  const std::span<char> into = transfer.arriving->into;
  if (into.empty()) {
    transfer.arriving->bytes.resize(transfer.length);
    transfer.data = transfer.arriving->bytes.data();
  } else if (transfer.length == into.size()) {
    transfer.data = into.data();
  } else {
    return absl::InternalError(absl::StrCat("rank ", InJob(transfer.peer), " sends ",
                                            transfer.length, " bytes, expected ", into.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Request> Exchange::PostSegment(PeerTransfer& transfer, int64_t segment) {
  char* data = reinterpret_cast<char*>(&transfer.length);
  size_t bytes = sizeof(transfer.length);
  if (segment > 0) {
    const size_t begin = static_cast<size_t>(segment - 1) * kSegmentBytes;
    data = transfer.data + begin;
    bytes = std::min(kSegmentBytes, transfer.length - begin);
  }
  return Post(transfer.arriving != nullptr ? RequestKind::kReceive : RequestKind::kSend, data,
              bytes, transfer.peer);
}

}  // namespace gyre
