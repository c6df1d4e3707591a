// algorithms.h: the constructors of algorithms, each described in its own file.  Communicator,
// arenas and device outlive the result.
#pragma once

#include <memory>
#include <vector>

#include "distributed/collectives/collective.h"

namespace gyre {

std::unique_ptr<Collective> NewMessageRing(Communicator& communicator, int tag);  // ring.cc
// Over these ranks alone, with this one, or over all.
std::unique_ptr<Collective> NewDirect(Communicator& communicator, int tag,
                                      std::vector<int> ranks = {});
std::unique_ptr<Collective> NewRecursiveDoubling(Communicator& communicator, int tag);
std::unique_ptr<Collective> NewHalvingDoubling(Communicator& communicator, int tag);
std::unique_ptr<Collective> NewNaive(Communicator& communicator, int tag);

// In the arenas if all ranks share a host and the tensor is there.  Otherwise by messages.
absl::StatusOr<std::unique_ptr<Collective>> NewRing(Communicator& communicator, int tag,
                                                    const SharedArenas& arenas);

std::unique_ptr<Collective> NewBroadcast(Communicator& communicator, int tag);

// Blocks until all ranks have called it.  Without room for its memory it is `direct`, which has the
// same order of additions.  Errors: InvalidArgument unless all ranks are on one host, and those of
// the communicator.
absl::StatusOr<std::unique_ptr<Collective>> NewShared(Communicator& communicator, int tag,
                                                      const SharedArenas& arenas);

// Likewise over the ranks of this host, and no others.
absl::StatusOr<std::unique_ptr<Collective>> NewSharedOfHost(Communicator& communicator, int tag,
                                                            const SharedArenas& arenas);

// Likewise, within each host.  Errors: those of NewShared.
absl::StatusOr<std::unique_ptr<Collective>> NewHierarchical(Communicator& communicator, int tag,
                                                            const SharedArenas& arenas);

// Blocks until all ranks have called it.  Errors: InvalidArgument unless ranks are MPI processes,
// and those of MPI.
absl::StatusOr<std::unique_ptr<Collective>> NewMpi(Communicator& communicator, int tag);

// On device memory.  Errors: those of the device.
absl::StatusOr<std::unique_ptr<Collective>> NewDeviceRing(Communicator& communicator, int tag,
                                                          Device& device);
size_t DeviceRingBytes(size_t bytes, int ranks);

}  // namespace gyre
