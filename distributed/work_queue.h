// work_queue.h: the operations between ranks, from submission until a caller has waited for them.
//
// One thread submits, and one at a time drives (process_group.h).  All ranks submit the same
// in the same order.  Nothing is allocated unless more than ever is under way at once.
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
#include "distributed/gradient_bucket.h"

namespace gyre {

// Lanes, each with a tag and staging of its own.  Work in a lane is sequential, and lanes do not
// wait for each other.
//   in order  in turn, so that ranks agree (gradient_bucket.h)
//   urgent    work of kMostUrgent
//   awaited   sums that a stream awaits, perhaps submitted long before their memory is ready
//   exchange  mail, which may take long
inline constexpr int kUrgentLane = kLanesInOrder;
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
  // Among work that can go on, the highest does.  Earlier work in its lane gets it too.
  int urgency = 0;
  const Event* ready = nullptr;
  // Runs in place of an operation once all earlier work is done.  It may wait for other ranks.
  const std::function<absl::Status()>* call = nullptr;
  int64_t ticket = 0;          // position among all work
  int64_t lane = 0, turn = 0;  // turn: position in the lane
  double result = 0;
  Collective* by = nullptr;  // null before it starts
  double begun = 0;          // Timeline::Now at the start; 0 without a timeline
};

using Works = std::list<Work>;

class WorkQueue {
 public:
  // Submitting thread.  describe(Work&) fills in the work, whose `what` is empty and has room.
  // With `call` it wakes the thread in AwaitCall.
  template <typename Describe>
  int64_t Submit(bool call, const Describe& describe);
  // Whether the work is done.  Errors: the first of any work, which then every ticket has.
  absl::StatusOr<bool> Done(int64_t ticket);
  // If the work is done, returns its result and forgets the ticket.  `since` is the wait's start.
  absl::StatusOr<bool> Collect(int64_t ticket, double since, double* result);
  // Whether more than `seen` are done.  Sets *done to how many are.
  absl::StatusOr<bool> DoneMore(int64_t seen, double since, int64_t* done);
  // Between these two nothing wakes the thread in AwaitCall.
  void BeginWait() { ++waiting_; }
  void EndWait();
  // No work follows.
  void Close();
  absl::Status status();

  // Makes `reason` the error of the driving thread's work, if it is the first.  Any thread.
  void Abort(const absl::Status& reason);

  // Driving thread.  Blocks until called for work, the end or an abort while no caller waits.
  // Returns false after `patience`.
  bool AwaitCall(std::chrono::milliseconds patience);
  // Wakes it, as work would.
  void Call();
  // Clears the call unless there is work.  Returns whether no work follows.
  bool Rest();

  // One thread at a time:

  // Moves submitted work to `active`, ordered by urgency, then by ticket.
  void Take(Works& active);
  absl::Status aborted();
  void Finish(Works& active, Works::iterator work);
  void Fail(const absl::Status& status);
  bool failed() const { return !status_.ok(); }

 private:
  void AddSpare();

  std::atomic<bool> arriving_ = false, aborting_ = false;
  std::atomic<int> waiting_ = 0;
  std::mutex mutex_;  // guards the members below
  std::condition_variable work_;
  bool called_ = false, closed_ = false;
  Works queue_;    // submitted, not in `active`
  Works results_;  // done, not collected
  Works spare_;
  int64_t submitted_ = 0, in_order_ = 0, done_ = 0;
  std::array<int64_t, kLanes> entered_ = {};
  absl::Status status_;  // the first error; written by the driving thread
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
