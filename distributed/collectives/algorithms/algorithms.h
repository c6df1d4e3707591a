// algorithms.h: each algorithm's constructor.  What each does is in its own file; communicator,
// arenas and device must outlive what is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "distributed/collectives/choice/selector.h"
#include "distributed/collectives/collective.h"

namespace gyre {

std::unique_ptr<Collective> NewMessageRing(Communicator& communicator, int tag);  // ring.cc
std::unique_ptr<Collective> NewDirect(Communicator& communicator, int tag);
std::unique_ptr<Collective> NewRecursiveDoubling(Communicator& communicator, int tag);
std::unique_ptr<Collective> NewHalvingDoubling(Communicator& communicator, int tag);
std::unique_ptr<Collective> NewNaive(Communicator& communicator, int tag);

// In the arenas where all ranks share a host and a tensor lies there; else by messages.
std::unique_ptr<Collective> NewRing(Communicator& communicator, int tag,
                                    const SharedArenas& arenas);

// Has no sum.
std::unique_ptr<Collective> NewBroadcast(Communicator& communicator, int tag);

// Blocks until all ranks have come here; `direct`, of the same order of additions, where there is
// no room for its memory.  Errors: InvalidArgument unless all ranks are on one host; the
// communicator's.
absl::StatusOr<std::unique_ptr<Collective>> NewShared(Communicator& communicator, int tag,
                                                      const SharedArenas& arenas);

// The same, of the ranks of each host.  Errors: those of NewShared.
absl::StatusOr<std::unique_ptr<Collective>> NewHierarchical(Communicator& communicator, int tag,
                                                            const SharedArenas& arenas);

// Blocks until all ranks have come here, which are processes of MPI's.  Errors: InvalidArgument if
// they are not; the library's.
absl::StatusOr<std::unique_ptr<Collective>> NewMpi(Communicator& communicator, int tag);

// One of those that a selector chooses between.
struct Member {
  std::string algorithm;
  std::unique_ptr<Collective> sums;  // with the tag of them all
};
// Precondition: the selector's choices, "direct" and "broadcast" are among the members.
std::unique_ptr<Collective> NewAuto(Communicator& communicator, int tag, Selector selector,
                                    std::vector<Member> members);

// On device memory.  Errors: those of the device.
absl::StatusOr<std::unique_ptr<Collective>> NewDeviceRing(Communicator& communicator, int tag,
                                                          Device& device);
size_t DeviceRingBytes(size_t bytes, int ranks);

}  // namespace gyre
