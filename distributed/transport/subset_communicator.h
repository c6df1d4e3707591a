// subset_communicator.h: some of a communicator's ranks, numbered anew, as a communicator.
#pragma once

#include <memory>
#include <vector>

#include "distributed/transport/communicator.h"

namespace gyre {

// ranks: of `whole`, this one among them; they are 0, 1, ... of the result.  Messages go through
// `whole`, which must outlive it; between two ranks a tag must not serve both at once.
std::unique_ptr<Communicator> NewSubsetCommunicator(Communicator& whole, std::vector<int> ranks);

}  // namespace gyre
