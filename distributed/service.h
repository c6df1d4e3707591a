// service.h: what the thread that drives does for other ranks besides operations in order: a
// parameter server's part, whose messages come when they come.
#pragma once

#include "distributed/transport/communicator.h"

namespace gyre {

class Service {
 public:
  virtual ~Service() = default;
  // Does all that can be done at once; never blocks.  Called again and again by whoever drives, one
  // thread at a time.  kWaiting: nothing was to be done.  Errors become those of all operations.
  virtual absl::StatusOr<Advance> Progress(Communicator& communicator) = 0;
};

}  // namespace gyre
