#include "distributed/parameter_server/exchange.h"

#include "engine/runtime/check.h"

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

}  // namespace gyre
