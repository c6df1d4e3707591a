#include "distributed/collectives/channel.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

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

Channel::Channel(Communicator& communicator, int tag, std::vector<int> ranks)
    : communicator_(communicator), tag_(tag) {
  if (ranks.empty()) {
    ranks.resize(communicator.size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  for (const int rank : ranks) peers_.push_back({.in_job = rank});
  const auto self = std::ranges::find(ranks, communicator.rank());
  GYRE_CHECK(self != ranks.end());
  rank_ = static_cast<int>(self - ranks.begin());
  pending_.reserve(2 * peers_.size());
}

void Channel::Open(const Claim& claim) {
  GYRE_CHECK(pending_.empty());
  claim_ = claim;
  for (Peer& peer : peers_) peer.claimed = peer.heard = false;
}

absl::Status Channel::ClaimTo(int to) {
  if (peers_[to].claimed) return absl::OkStatus();
  peers_[to].claimed = true;
  ASSIGN_OR_RETURN(const Request request,
                   communicator_.Send(&claim_, sizeof(claim_), in_job(to), tag_));
  pending_.push_back({request, -1});
  return absl::OkStatus();
}

absl::Status Channel::HearFrom(int from) {
  Peer& peer = peers_[from];
  if (peer.heard) return absl::OkStatus();
  peer.heard = true;
  ASSIGN_OR_RETURN(const Request request,
                   communicator_.Receive(&peer.theirs, sizeof(Claim), peer.in_job, tag_));
  pending_.push_back({request, from});
  return absl::OkStatus();
}

absl::Status Channel::Announce() {
  if (size() == 1) return absl::OkStatus();
  RETURN_IF_ERROR(ClaimTo((rank() + 1) % size()));
  return HearFrom((rank() + size() - 1) % size());
}

absl::StatusOr<Request> Channel::Send(const void* data, size_t bytes, int to) {
  RETURN_IF_ERROR(ClaimTo(to));
  return communicator_.Send(data, bytes, in_job(to), tag_);
}

absl::StatusOr<Request> Channel::Receive(void* data, size_t bytes, int from) {
  RETURN_IF_ERROR(HearFrom(from));
  return communicator_.Receive(data, bytes, in_job(from), tag_);
}

absl::StatusOr<bool> Channel::Test(Request request) {
  absl::StatusOr<bool> done = communicator_.Test(request);
  // A claim went ahead of what has come, and tells more than that its length is wrong.
  if (!pending_.empty()) RETURN_IF_ERROR(Settled().status());
  return done;
}

absl::StatusOr<bool> Channel::Settled() {
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
    const absl::Status status = Compare(claim_, in_job(rank_), peers_[from].theirs, in_job(from));
    if (!status.ok()) {
      communicator_.Tell(status);
      return status;
    }
  }
  return pending_.empty();
}

}  // namespace gyre
