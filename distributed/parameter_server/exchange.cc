#include "distributed/parameter_server/exchange.h"

#include "absl/strings/str_cat.h"
#include "distributed/transport/backoff.h"
#include "engine/runtime/check.h"
#include "engine/runtime/machine.h"

namespace gyre {

absl::Status Giving::Begin(Communicator& communicator, const PlaceOfRank& at) {
  GYRE_CHECK(!under_way());
  const int rank = communicator.rank();
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == rank) continue;
    const std::span<std::byte> own = at(rank), theirs = at(peer);
    transfers_.push_back({.sender = peer, .transfer = {}});
    RETURN_IF_ERROR(transfers_.back().transfer.Begin(communicator, Transfer::MessageKind::kReceive,
                                                     theirs.data(), theirs.size(), peer,
                                                     kExchangeTag));
    transfers_.push_back({.sender = rank, .transfer = {}});
    RETURN_IF_ERROR(transfers_.back().transfer.Begin(communicator, Transfer::MessageKind::kSend,
                                                     own.data(), own.size(), peer, kExchangeTag));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Giving::Progress(Communicator& communicator) {
  bool all = true;
  for (Message& message : transfers_) {
    if (!message.transfer.under_way()) continue;
    ASSIGN_OR_RETURN(const bool done, message.transfer.Progress(communicator));
    all = all && done;
  }
  if (all) transfers_.clear();
  return all;
}

int Giving::AwaitedRank() const {
  for (size_t i = 0; i < transfers_.size(); i += 2) {  // of a peer's two the first is received
    if (transfers_[i].transfer.under_way()) return transfers_[i].sender;
  }
  return kNobody;
}

absl::Status GiveAll(Communicator& communicator, const PlaceOfRank& at) {
  Giving giving;
  RETURN_IF_ERROR(giving.Begin(communicator, at));
  Backoff backoff;
  while (true) {
    ASSIGN_OR_RETURN(const bool done, giving.Progress(communicator));
    if (done) return absl::OkStatus();
    backoff.Pause();
  }
}

absl::StatusOr<std::vector<std::vector<int64_t>>> TellAll(Communicator& communicator,
                                                          std::vector<int64_t> own) {
  const int ranks = communicator.size(), rank = communicator.rank();
  std::vector<size_t> sizes(ranks);
  sizes[rank] = own.size();
  RETURN_IF_ERROR(GiveAll(
      communicator, [&](int from) { return std::as_writable_bytes(std::span(&sizes[from], 1)); }));
  std::vector<std::vector<int64_t>> all(ranks);
  size_t room = MemoryBytes() / sizeof(int64_t);
  for (int from = 0; from < ranks; ++from) {
    if (sizes[from] > room) {
      return absl::ResourceExhaustedError(absl::StrCat("rank ", from, " tells ", sizes[from],
                                                       " numbers, and this host's memory has room "
                                                       "for ",
                                                       room));
    }
    room -= sizes[from];
    all[from].resize(sizes[from]);
  }
  all[rank] = std::move(own);
  RETURN_IF_ERROR(GiveAll(communicator,
                          [&](int from) { return std::as_writable_bytes(std::span(all[from])); }));
  return all;
}

}  // namespace gyre
