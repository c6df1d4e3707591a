// communicator.h: ranks, and bytes between them.
//
// Every call but Abort comes from one thread at a time; the one that has started MPI finishes it.
// Messages between a pair of ranks with the same tag arrive in order.  Nothing here
// blocks but WaitFor and Barrier: collectives are state machines that one thread can drive, abort
// and bound in time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/device/device.h"

namespace gyre {

using Request = int64_t;

// One tag a protocol: a message of one can never be taken for another's.  Operations of a process
// group have tags from kFirstOperationTag on.
enum Tag : int { kBarrierTag, kFaultTag, kSharedMemoryTag, kFirstOperationTag };

// More than all lanes have under way at once on a few ranks (`direct` 16 with each other rank in
// each of 5 lanes): room for so many is made at the start, because how many there are depends on
// timing.
inline constexpr int kUsualRequests = 256;

// In place of a rank.
inline constexpr int kNobody = -1, kUnheard = -2;

// What one pass of a non-blocking state machine did; tells its driver whether to back off.
enum class Advance {
  kWaiting,  // nothing: what it waits for has not arrived
  kMoved,    // some work; more may be ready
  kDone,
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The number by which people know a rank: that of the whole job.
  virtual int in_job(int rank) const { return rank; }
  // The host of each rank; hosts are numbered in order of their lowest ranks.  Ranks of a host can
  // share memory (shared_memory.h).
  virtual const std::vector<int>& hosts() const = 0;
  // An MPI_Comm* of these ranks; null where they are no processes of MPI's.
  virtual const void* native() const { return nullptr; }
  // How long a silent rank is waited for; more than 0.
  virtual int64_t timeout_ms() const = 0;
  // Tags are from 0 to this one.
  virtual int max_tag() const { return std::numeric_limits<int>::max(); }
  // True if Send and Receive take device memory of such a device, too.
  virtual bool moves_device_memory(DeviceKind kind) const = 0;

  // Start moving bytes; the memory must stay untouched until Test says true.  bytes may be 0.
  virtual absl::StatusOr<Request> Send(const void* data, size_t bytes, int to, int tag) = 0;
  virtual absl::StatusOr<Request> Receive(void* data, size_t bytes, int from, int tag) = 0;
  // As Send, but never finished before the receiver takes it, however short: a sender knows by it
  // how much is under way.
  virtual absl::StatusOr<Request> HandOver(const void* data, size_t bytes, int to, int tag) = 0;
  // As Receive, of a message that may be long in coming, or never come: it has no time limit, and
  // nobody is said to wait for it.
  virtual absl::StatusOr<Request> Expect(void* data, size_t bytes, int from, int tag) = 0;
  // Takes back what was expected, and has not begun to come: the request is gone.
  virtual absl::Status Withdraw(Request request) = 0;
  // True once, when the request is finished; the request is then gone.  Never blocks.
  // Errors: as Overdue after the communicator's time limit; Internal for a
  // message of another length than was asked for.  After an error the communicator is of no more
  // use but for Abort, and nothing is cancelled: the memory of its requests belongs to them until
  // the job has ended.
  virtual absl::StatusOr<bool> Test(Request request) = 0;
  // To be called now and then by a thread that has no request to test: a send may be finished, and
  // its bytes still wait in a buffer of the library's for the next call of any kind.
  // waiting_for: a rank, by what it is to write to memory, say; or kNobody.
  // Errors: what another rank has told.
  virtual absl::Status Poke(int waiting_for) = 0;

  // This rank has waited for another, or for one that it does not know (kNobody), for the time
  // limit.  Asks all whom they wait for, finds the one that everyone waits for, and makes that the
  // error of all.  Blocks for seconds.  Returns Unavailable, naming it and its host.
  virtual absl::Status Overdue(int rank) = 0;

  // Makes `fault` the error of every rank's later calls, within milliseconds where a rank tests:
  // what one rank has found out, all end with.  The first that a rank hears of counts.
  virtual void Tell(const absl::Status& fault) = 0;

  // Ends every rank of the job with this exit code, within seconds.  Any thread.  Prints nothing:
  // `reason` is for the caller to print first.  Returns only on communicators whose ranks are
  // threads; there every later call of any rank fails with `reason`.
  virtual void Abort(const absl::Status& reason, int exit_code) = 0;
};

// By whom each rank waits for (kNobody: for none that it knows; kUnheard: it does not answer), the
// one that `rank` waits for in the end: that does not answer, or waits for nobody.
int SilentRank(std::span<const int> waits_for, int rank);
// Says so.  `whom`: its name.
absl::Status Silence(std::span<const int> waits_for, int silent, const std::string& whom,
                     int64_t timeout_ms);

// Blocks until the request is done (spins, then sleeps).
absl::Status WaitFor(Communicator& communicator, Request request);
// Blocks until all ranks have come here.
absl::Status Barrier(Communicator& communicator);

// Ranks as threads of this process (`--ranks`, tests, a single rank): element r is for the thread
// that plays rank r.  A send finishes when its receive is there, as a large one does in MPI.
// hosts: what hosts() is to say (empty: one host).
std::vector<std::unique_ptr<Communicator>> NewThreadCommunicators(int ranks, int64_t timeout_ms,
                                                                  std::vector<int> hosts = {});

// Starts MPI on the calling thread and finishes it when destroyed there; destroyed after an error,
// it ends the job as Abort does, because finishing would wait for ranks that may never come.
// Blocks as long as MPI does: until all ranks have come, or for ever.  Ignores SIGPIPE, unless the
// program has chosen otherwise.  A later call that MPI does not come back from ends the process,
// with the reason on stderr. Errors: Unavailable if MPI does not start, or has other ranks than
// announced.  Open MPI itself ends the process where MPI_Init fails.
absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicator(int64_t timeout_ms);

// Over an MPI that the program has started.  comm: an MPI_Comm*, which is duplicated.  Blocks until
// all its ranks have come here.  Used and destroyed on the calling thread, before MPI_Finalize;
// after an error the duplicate is left as it is.  Calls that do not come back: as above.
// Errors: FailedPrecondition unless MPI runs with MPI_THREAD_MULTIPLE; InvalidArgument if comm is
// MPI_COMM_NULL or between two groups; the library's.
absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicatorOver(const void* comm,
                                                                     int64_t timeout_ms);

}  // namespace gyre
