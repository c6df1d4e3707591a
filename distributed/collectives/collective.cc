#include "distributed/collectives/collective.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {

uint64_t Hash(std::string_view bytes, uint64_t hash) {
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

Claim Claim::Of(int64_t sequence, std::string_view what) {
  Claim claim{.sequence = sequence, .hash = Hash(what)};
  std::ranges::copy(what.substr(0, claim.what.size() - 1), claim.what.begin());
  return claim;
}

Claim Claim::By(std::string_view how) const {
  Claim claim = *this;
  claim.hash = Hash(how, hash);
  auto end = std::ranges::find(claim.what, '\0');
  for (const std::string_view part : {std::string_view(" by "), how}) {
    const auto room = static_cast<size_t>(claim.what.end() - 1 - end);
    end = std::ranges::copy(part.substr(0, room), end).out;
  }
  return claim;
}

absl::Status Compare(const Claim& mine, int rank, const Claim& theirs, int peer) {
  if (mine.sequence == theirs.sequence && mine.hash == theirs.hash) return absl::OkStatus();
  const bool first = rank < peer;
  const Claim &low = first ? mine : theirs, &high = first ? theirs : mine;
  const auto step = [&](const Claim& claim) {
    return mine.sequence == theirs.sequence ? ""
                                            : absl::StrCat(" (operation ", claim.sequence, ")");
  };
  return absl::FailedPreconditionError(
      absl::StrCat("ranks disagree: rank ", std::min(rank, peer), " is at ", low.what.data(),
                   step(low), ", rank ", std::max(rank, peer), " at ", high.what.data(), step(high),
                   "; give all ranks the same program, flags and files"));
}

Collective::Collective(Communicator& communicator, int tag, std::vector<int> ranks)
    : communicator_(communicator),
      ranks_(ranks.empty() ? communicator.size() : static_cast<int>(ranks.size())),
      owners_(ranks_),
      tag_(tag) {
  if (ranks.empty()) {
    ranks.resize(ranks_);
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  for (const int rank : ranks) peers_.push_back({.in_job = rank});
  const auto self = std::ranges::find(ranks, communicator.rank());
  GYRE_CHECK(self != ranks.end());
  rank_ = static_cast<int>(self - ranks.begin());
  pending_.reserve(2 * peers_.size());
}

absl::Status Collective::Start(const Claim& claim, Operation operation, Tensor inout, int root) {
  const bool sums = operation == Operation::kAllreduce || operation == Operation::kReduceScatter;
  if (sums) RETURN_IF_ERROR(CheckSummable(inout.dtype));
  GYRE_CHECK(!running_ && pending_.empty() && root >= 0 && root < ranks_);
  for (Peer& peer : peers_) peer.claimed = peer.heard = false;
  claim_ = claim;
  operation_ = operation;
  root_ = root;
  tensor_ = inout;
  size_ = static_cast<int64_t>(SizeOf(inout.dtype));
  squares_ = 0;
  running_ = true;
  finished_ = false;
  return Begin();
}

absl::StatusOr<Advance> Collective::Progress(double* sum_of_squares) {
  GYRE_CHECK(running_);
  if (!finished_) {
    ASSIGN_OR_RETURN(const Advance advance, Step());
    if (advance != Advance::kDone) return advance;
    finished_ = true;
  }
  ASSIGN_OR_RETURN(const bool settled, Settled());
  if (!settled) return Advance::kWaiting;
  running_ = false;
  *sum_of_squares = squares_;
  return Advance::kDone;
}

absl::Status Collective::PostClaim(RequestKind kind, int rank) {
  Peer& peer = peers_[rank];
  const bool sends = IsSend(kind);
  if (std::exchange(sends ? peer.claimed : peer.heard, true)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Request request, communicator_.Begin(kind, sends ? &claim_ : &peer.theirs,
                                                              sizeof(Claim), peer.in_job, tag_));
  pending_.push_back({request, sends ? -1 : rank});
  return absl::OkStatus();
}

absl::Status Collective::Announce() {
  if (ranks_ == 1) return absl::OkStatus();
  RETURN_IF_ERROR(PostClaim(RequestKind::kSend, (rank_ + 1) % ranks_));
  return PostClaim(RequestKind::kReceive, (rank_ + ranks_ - 1) % ranks_);
}

absl::StatusOr<Request> Collective::Post(RequestKind kind, void* data, size_t bytes, int peer) {
  RETURN_IF_ERROR(PostClaim(kind, peer));
  return communicator_.Begin(kind, data, bytes, InJob(peer), tag_);
}

absl::Status Collective::PostInSegments(RequestKind kind, void* data, size_t bytes, int peer) {
  for (size_t begin = 0; begin < bytes; begin += kSegmentBytes) {
    ASSIGN_OR_RETURN(requests_.emplace_back(), Post(kind, static_cast<std::byte*>(data) + begin,
                                                    std::min(kSegmentBytes, bytes - begin), peer));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Collective::Test(Request request) {
  absl::StatusOr<bool> done = communicator_.Test(request);
  // A claim went ahead of what has come, and tells more than that its length is wrong.
  if (!pending_.empty()) RETURN_IF_ERROR(Settled().status());
  return done;
}

absl::StatusOr<bool> Collective::Settled() {
  for (size_t i = 0; i < pending_.size();) {
    ASSIGN_OR_RETURN(const bool done, communicator_.Test(pending_[i].request));
    if (!done) {
      ++i;
      continue;
    }
    const int from = pending_[i].from;
    pending_[i] = pending_.back();
    pending_.pop_back();
    if (from < 0) continue;
    const absl::Status status = Compare(claim_, InJob(rank_), peers_[from].theirs, InJob(from));
    if (!status.ok()) {
      communicator_.Tell(status);
      return status;
    }
  }
  return pending_.empty();
}

absl::StatusOr<bool> Collective::AllDone(std::vector<Request>& requests) {
  while (!requests.empty()) {
    ASSIGN_OR_RETURN(const bool done, Test(requests.back()));
    if (!done) return false;
    requests.pop_back();
  }
  return true;
}

absl::StatusOr<bool> Collective::EndDone(MessageWindow& window) {
  const int64_t before = window.done;
  for (; window.done < window.posted; ++window.done) {
    ASSIGN_OR_RETURN(const bool done, Test(window.requests[window.done % MessageWindow::kMost]));
    if (!done) break;
  }
  return window.done > before;
}

std::byte* Collective::Staging(size_t bytes) {
  if (staging_bytes_ < bytes) {
    staging_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

InArena Locate(const SharedArenas& arenas, int index, const void* data) {
  const auto* const begin = static_cast<const std::byte*>(data);
  for (size_t i = 0; i < arenas.size(); ++i) {
    const std::byte* const arena = arenas[i]->of(index);
    if (begin < arena || begin >= arena + arenas[i]->bytes(index)) continue;
    return {.arena = static_cast<int64_t>(i), .offset = begin - arena};
  }
  return {};
}

absl::Status Collective::Lacks() const {
  return absl::UnimplementedError("this algorithm does not have this operation");
}

}  // namespace gyre
