// exchange.h: what all ranks tell each other at once.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "distributed/transport/communicator.h"

namespace gyre {

// Beyond the tags of the process group's operations: of what is told at once; accesses have those
// that follow.
inline constexpr int kExchangeTag = kFirstOperationTag + 64;

// Each rank's place of memory that all have, from that rank.  at(r) is as long on all ranks.
// Blocks.
absl::Status GiveAll(Communicator& communicator,
                     const std::function<std::span<std::byte>(int rank)>& at);

// What each rank has told, by rank.  Blocks.
absl::StatusOr<std::vector<std::vector<int64_t>>> TellAll(Communicator& communicator,
                                                          std::vector<int64_t> own);

}  // namespace gyre
