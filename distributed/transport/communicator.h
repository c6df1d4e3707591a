// communicator.h: messages of bytes between ranks, over MPI or threads.
//
// One thread at a time calls it, except Abort.  The thread that starts MPI also finishes it.
// Messages between two ranks with one tag arrive in order.  Messages do not block, so one
// thread can drive, abort and bound several collectives.  WaitFor and Overdue do.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/device/device.h"

namespace gyre {

using Request = int64_t;

// A tag for each protocol, so that their messages never match.  Operations of a process group have
// tags from kFirstOperationTag on.
enum Tag : int { kFaultTag = 1, kSharedMemoryTag, kFirstOperationTag };

// Requests for which room is made at the start, because their number depends on timing.  It exceeds
// that of all lanes on a few ranks (with `direct` 16 for each other rank, in each of 5 lanes).
inline constexpr int kUsualRequests = 256;

// The longest message.  What is longer travels in segments, of 256 KiB at most.
inline constexpr size_t kMostMessageBytes = std::numeric_limits<int>::max();

// In place of a rank: none, or one that does not answer.
inline constexpr int kNobody = -1, kUnheard = -2;

enum class RequestKind : uint8_t { kSend, kHandOver, kReceive, kExpect };
constexpr bool IsSend(RequestKind kind) { return kind <= RequestKind::kHandOver; }

// Result of one pass of a state machine.  Tells its driver whether to back off.
enum class Advance {
  kWaiting,  // nothing was done, because a message or an event has not arrived
  kMoved,    // some work was done, and more may be ready
  kDone,
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Host of each rank, numbered by their lowest ranks.  Ranks of a host can share memory
  // (shared_memory.h).
  virtual const std::vector<int>& hosts() const = 0;
  // An MPI_Comm* of these ranks, or null if they are not MPI processes.
  virtual const void* native() const { return nullptr; }
  // Limit of the wait for a silent rank, above 0.
  virtual int64_t timeout_ms() const = 0;
  virtual int max_tag() const { return std::numeric_limits<int>::max(); }
  // Whether Send and Receive also accept memory of such a device.
  virtual bool moves_device_memory(DeviceKind kind) const = 0;

  // Begin a message of `bytes`, 0 to kMostMessageBytes.  The memory stays untouched until Test
  // returns true.
  absl::StatusOr<Request> Send(const void* data, size_t bytes, int to, int tag) {
    return Begin(RequestKind::kSend, const_cast<void*>(data), bytes, to, tag);
  }
  absl::StatusOr<Request> Receive(void* data, size_t bytes, int from, int tag) {
    return Begin(RequestKind::kReceive, data, bytes, from, tag);
  }
  // As Send, but it finishes only once the receiver takes the message, however short.  The sender
  // thus knows how much is under way.
  absl::StatusOr<Request> HandOver(const void* data, size_t bytes, int to, int tag) {
    return Begin(RequestKind::kHandOver, const_cast<void*>(data), bytes, to, tag);
  }
  // As Receive, for a message that may come late or never.  It has no time limit, and this rank is
  // not reported as waiting for it.
  absl::StatusOr<Request> Expect(void* data, size_t bytes, int from, int tag) {
    return Begin(RequestKind::kExpect, data, bytes, from, tag);
  }
  // Any of the four.  Sends only read the memory.
  virtual absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                        int tag) = 0;
  // Ends a request of Expect for which nothing has arrived.
  virtual absl::Status Withdraw(Request request) = 0;
  // Returns true once, when the request is done.  The request then ends.  Never blocks.
  // Errors: those of Overdue after the time limit, and Internal for a message of another length.
  // After an error only Abort may follow.  Nothing is cancelled, so memory of requests belongs to
  // them until the job has ended.
  virtual absl::StatusOr<bool> Test(Request request) = 0;
  // Called now and then by a thread without a request to test.  A finished send may have bytes in a
  // buffer of MPI that wait for its next call.  `waiting_for` is the rank for which this one waits
  // by other means, such as shared memory, or kNobody.  Errors: the fault of another rank (Tell).
  virtual absl::Status Poke(int waiting_for) = 0;

  // Called after a wait for `rank` (kNobody if unknown) of the time limit.  Asks the other ranks
  // whom they wait for, and makes the rank at the end of that chain the error of all.  Blocks for
  // seconds.  Returns Unavailable, with that rank and its host.
  virtual absl::Status Overdue(int rank) = 0;

  // Makes `fault` the error of every rank's later calls, within milliseconds for ranks that test.
  // The first fault that a rank hears of counts.
  virtual void Tell(const absl::Status& fault) = 0;

  // Ends every rank of the job with this exit code, within seconds.  Any thread.  The caller prints
  // `reason` first.  Returns only if ranks are threads, whose later calls then fail with `reason`.
  virtual void Abort(const absl::Status& reason, int exit_code) = 0;
};

// The rank at the end of the chain of waits from `rank`.  It does not answer (kUnheard), or waits
// for no rank that it knows (kNobody).  For a circle, or kNobody, it is the first rank that
// does not answer, else `rank`.
int SilentRank(std::span<const int> waits_for, int rank);
// The error for it.  `whom` is its name.
absl::Status Silence(std::span<const int> waits_for, int silent, const std::string& whom,
                     int64_t timeout_ms);

// How a thread waits for an event that it can only poll.  It spins, then sleeps.  A message within
// a host takes microseconds, and a bucket's next gradient milliseconds.  The polling thread shares
// its core with a computing thread.
class Backoff {
 public:
  // After an event.  The next is likely to be near.
  void Reset() { since_.reset(); }
  // After a poll without an event.  Gives up the core, for longer the longer the wait has been.
  void Pause();

 private:
  std::optional<std::chrono::steady_clock::time_point> since_;  // the first poll without an event
};

// A wait for other ranks by polling memory or a library that knows no time limit.  It looks at the
// clock, and hears other ranks, every 64th time.
class PolledWait {
 public:
  // At the start, and whenever a rank that was waited for has come.
  void Reset() { polls_ = 0; }
  // After a poll without success.  Errors: those of Poke, and of Overdue after the time limit.
  absl::Status Look(Communicator& communicator, int waiting_for);

 private:
  int polls_ = 0;
  std::chrono::steady_clock::time_point deadline_;  // since the first look
};

// Blocks until the request is done.
absl::Status WaitFor(Communicator& communicator, Request request);

// Keeps memory that messages may still read and write after an error, until the process has ended.
void Keep(std::shared_ptr<void> memory);

// Ranks as threads of this process (`--ranks`, tests, a single rank).  Element r is used by the
// thread of rank r.  A send finishes when its receive is posted, as a large one does in MPI.
// `hosts` is the result of hosts(), or empty for one host.
std::vector<std::unique_ptr<Communicator>> NewThreadCommunicators(int ranks, int64_t timeout_ms,
                                                                  std::vector<int> hosts = {});

// Starts MPI on the calling thread, and finishes it when destroyed there.  Destroyed after an error
// it ends the job as Abort does, because MPI_Finalize could wait for absent ranks.
// Blocks until all ranks have come, or for ever.  Ignores SIGPIPE unless the program handles it.  A
// later MPI call that does not return ends the process, with the reason on stderr.
// Errors: Unavailable if MPI does not start, or has other ranks than the launcher announced.  Open
// MPI itself ends the process if MPI_Init fails.
absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicator(int64_t timeout_ms);

// Likewise over an MPI that the program has started.  comm is an MPI_Comm*, and is duplicated.
// Blocks until all its ranks have called it.  Used and destroyed on the calling thread, before
// MPI_Finalize.  After an error the duplicate is not freed.
// Errors: FailedPrecondition unless MPI runs with MPI_THREAD_MULTIPLE, InvalidArgument if comm is
// MPI_COMM_NULL or an intercommunicator, and those of MPI.
absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicatorOver(const void* comm,
                                                                     int64_t timeout_ms);

}  // namespace gyre
