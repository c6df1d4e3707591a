// service.h: work of the driving thread besides operations in order.  It serves messages that may
// arrive at any time, such as a parameter server's.
#pragma once

#include "distributed/transport/communicator.h"

namespace gyre {

class Service {
 public:
  virtual ~Service() = default;
  // Does all that needs no waiting, and never blocks.  The driving thread calls it repeatedly.
  // Returns kWaiting if there was nothing to do.  Errors become those of all operations.
  virtual absl::StatusOr<Advance> Progress(Communicator& communicator) = 0;
};

}  // namespace gyre
