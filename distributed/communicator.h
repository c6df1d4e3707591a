// communicator.h: ranks, and bytes between them.
//
// Every call but Abort comes from one thread, the communication thread, which also starts and
// finishes MPI.  Messages between a pair of ranks with the same tag arrive in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

using Request = int64_t;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Start moving bytes; the memory must stay untouched until Test says true.  bytes may be 0.
  virtual absl::StatusOr<Request> Send(const void* data, size_t bytes, int to, int tag) = 0;
  virtual absl::StatusOr<Request> Receive(void* data, size_t bytes, int from, int tag) = 0;
  // True once, when the request is finished; the request is then gone.  Never blocks.
  // Errors: Unavailable naming the silent rank after the communicator's time limit; Internal for a
  // message of another length than was asked for.
  virtual absl::StatusOr<bool> Test(Request request) = 0;

  // Ends every rank of the job with this reason, within seconds.  Any thread.  Returns only on
  // communicators whose ranks are threads; there every later call fails with `reason`.
  virtual void Abort(const absl::Status& reason) = 0;
};

// Blocks until the request is done (spins, then sleeps).
absl::Status WaitFor(Communicator& communicator, Request request);
// Blocks until all ranks have come here.
absl::Status Barrier(Communicator& communicator);

// Ranks as threads of this process, for tests: element r is for the thread that plays rank r.
std::vector<std::unique_ptr<Communicator>> NewThreadCommunicators(int ranks, int64_t timeout_ms);

// Starts MPI on the calling thread and finishes it when destroyed there.  Errors: Unavailable if
// MPI does not start.
absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicator(int64_t timeout_ms);

// True if mpirun started this process.
bool StartedByMpirun();
// The rank and size mpirun announced in the environment; {0, 1} without it.  Callable before MPI
// starts.
struct RankAndSize {
  int rank = 0, size = 1;
};
RankAndSize AnnouncedRank();

}  // namespace gyre
