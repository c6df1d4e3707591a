// work_queue.h: what is to be done between ranks, between the thread that submits it and waits for
// it, and the one that drives it: either, one at a time (communication_thread.h).
//
// All ranks submit the same in the same order.  Work that is submitted, done and waited for again
// and again takes no new memory, unless more than ever is under way at once.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/collectives/exchange.h"

namespace gyre {

// Work in order goes through these lanes in turn, and has tag and staging in each for itself: so
// much can be under way, and on all ranks the same meet.  As many as buckets become ready while one
// of a few MB is summed.  The most urgent work has a lane of its own, one after another, and so
// have sums that a stream awaits, which may be submitted long before their memory is ready, and
// exchanges, which may take long.
inline constexpr int kLanesInOrder = 4, kUrgentLane = kLanesInOrder;
inline constexpr int kAwaitedLane = kUrgentLane + 1, kExchangeLane = kAwaitedLane + 1;
inline constexpr int kLanes = kExchangeLane + 1;

inline constexpr int kMostUrgent = std::numeric_limits<int>::max();
inline constexpr int kAwaited = kMostUrgent - 1;
inline constexpr int kLeastUrgent = std::numeric_limits<int>::min();

struct Work {
  std::string what;  // the same on all ranks
  Operation operation = Operation::kAllreduce;
  int root = 0;
  Tensor inout;
  MemoryKind memory = MemoryKind::kPinnedHost;
  Mail* mail = nullptr;  // of an exchange
  int urgency = 0;  // of what can go on, the highest does; what it follows in its lane has it, too
  const Event* ready = nullptr;
  // In place of an operation, once all work before it is done; may wait for other ranks.
  const std::function<absl::Status()>* call = nullptr;
  int64_t ticket = 0;          // its place in the order
  int64_t lane = 0, turn = 0;  // in that lane
  double result = 0;
  Collective* by = nullptr;  // under way
  double begun = 0;          // as Timeline::Now, where it is on
};

using Works = std::list<Work>;

class WorkQueue {
 public:
  // The submitting thread's.  call: the thread that sleeps in AwaitCall.  describe(Work&) fills in
  // what it is; `what` is empty but has room.
  template <typename Describe>
  int64_t Submit(bool call, const Describe& describe);
  // Errors: the first of any work; every ticket has it from then on.
  absl::StatusOr<bool> Done(int64_t ticket);
  // Once it is done: its result; the ticket is then forgotten.  since: when the wait for it began.
  absl::StatusOr<bool> Collect(int64_t ticket, double since, double* result);
  // Whether more than `seen` pieces of work have been done, and how many have.
  absl::StatusOr<bool> DoneMore(int64_t seen, double since, int64_t* done);
  // Between these nobody is called.
  void BeginWait() { ++waiting_; }
  void EndWait();
  // Nothing follows.
  void Close();
  // The first error so far.
  absl::Status status();

  // Any thread's: the work in hand is to fail with this reason, if it is the first.
  void Abort(const absl::Status& reason);

  // Blocks until called, and nobody waits: for work, the end or an abort; false if that was not
  // within `patience`.
  bool AwaitCall(std::chrono::milliseconds patience);
  // As if there were work.
  void Call();
  // Until called again, unless there is work.  Whether nothing follows.
  bool Rest();

  // What follows is for one thread at a time.

  // Moves what was submitted to `active`, where the most urgent comes first, then what was
  // submitted first.
  void Take(Works& active);
  // OK: nobody has aborted.
  absl::Status aborted();
  void Finish(Works& active, Works::iterator work);
  void Fail(const absl::Status& status);
  bool failed() const { return !status_.ok(); }

 private:
  void AddSpare();

  std::atomic<bool> arriving_ = false, aborting_ = false;
  std::atomic<int> waiting_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  bool called_ = false, closed_ = false;
  Works queue_;    // not yet taken
  Works results_;  // finished, not waited for
  Works spare_;    // to be used again
  int64_t submitted_ = 0, in_order_ = 0, done_ = 0;
  std::array<int64_t, kLanes> entered_ = {};
  absl::Status status_;  // the first error; written by who drives alone
  absl::Status abort_reason_;
};

template <typename Describe>
int64_t WorkQueue::Submit(bool call, const Describe& describe) {
  int64_t ticket;
  {
    std::lock_guard lock(mutex_);
    if (spare_.empty()) AddSpare();
    Work& work = spare_.front();
    std::string what = std::move(work.what);
    what.clear();
    work = {.what = std::move(what), .inout = {}};
    describe(work);
    work.ticket = ticket = submitted_++;
    work.lane = work.urgency == kMostUrgent ? kUrgentLane
                : work.urgency == kAwaited  ? kAwaitedLane
                : work.mail != nullptr      ? kExchangeLane
                                            : in_order_++ % kLanesInOrder;
    work.turn = entered_[work.lane]++;
    queue_.splice(queue_.end(), spare_, spare_.begin());
    arriving_ = true;
    called_ = called_ || call;
  }
  if (call) work_.notify_all();
  return ticket;
}

}  // namespace gyre
