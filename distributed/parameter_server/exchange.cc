#include "distributed/parameter_server/exchange.h"

#include "distributed/parameter_server/transfer.h"
#include "distributed/transport/backoff.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::Status GiveAll(Communicator& communicator,
                     const std::function<std::span<std::byte>(int rank)>& at) {
  const int rank = communicator.rank();
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == rank) continue;
    const std::span<std::byte> own = at(rank), theirs = at(peer);
    RETURN_IF_ERROR(transfers.emplace_back().Begin(
        communicator, Transfer::Way::kReceive, theirs.data(), theirs.size(), peer, kExchangeTag));
    RETURN_IF_ERROR(transfers.emplace_back().Begin(communicator, Transfer::Way::kSend, own.data(),
                                                   own.size(), peer, kExchangeTag));
  }
  Backoff backoff;
  for (bool all = false; !all;) {
    all = true;
    for (Transfer& transfer : transfers) {
      if (!transfer.under_way()) continue;
      ASSIGN_OR_RETURN(const bool done, transfer.Progress(communicator));
      all = all && done;
    }
    if (!all) backoff.Pause();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<int64_t>>> TellAll(Communicator& communicator,
                                                          std::vector<int64_t> own) {
  const int ranks = communicator.size(), rank = communicator.rank();
  std::vector<size_t> sizes(ranks);
  sizes[rank] = own.size();
  RETURN_IF_ERROR(GiveAll(
      communicator, [&](int from) { return std::as_writable_bytes(std::span(&sizes[from], 1)); }));
  std::vector<std::vector<int64_t>> all(ranks);
  for (int from = 0; from < ranks; ++from) all[from].resize(sizes[from]);
  all[rank] = std::move(own);
  RETURN_IF_ERROR(GiveAll(communicator,
                          [&](int from) { return std::as_writable_bytes(std::span(all[from])); }));
  return all;
}

}  // namespace gyre
