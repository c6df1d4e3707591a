// subset_communicator.h: a communicator of some ranks of another, numbered anew.
#pragma once

#include <memory>
#include <vector>

#include "distributed/transport/communicator.h"

namespace gyre {

// `ranks` of `whole`, with this rank, become 0, 1, ...  `whole` carries the messages and outlives
// the result.  Between two ranks a tag must not serve both communicators at once.
std::unique_ptr<Communicator> NewSubsetCommunicator(Communicator& whole, std::vector<int> ranks);

}  // namespace gyre
