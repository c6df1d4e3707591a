#include "distributed/work_queue.h"

#include <algorithm>
#include <iterator>

#include "engine/runtime/check.h"
#include "engine/runtime/timeline.h"

namespace gyre {

// Several, each with room for what a step's work is called: how much is under way at once, and
// which of them is used for what, depends on timing.
void WorkQueue::AddSpare() {
  for (int i = 0; i < 16; ++i) spare_.emplace_back().what.reserve(256);
}

absl::StatusOr<bool> WorkQueue::Done(int64_t ticket) {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  RETURN_IF_ERROR(status_);
  return std::ranges::find(results_, ticket, &Work::ticket) != results_.end();
}

absl::StatusOr<bool> WorkQueue::Collect(int64_t ticket, double since, double* result) {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  RETURN_IF_ERROR(status_);
  const auto found = std::ranges::find(results_, ticket, &Work::ticket);
  if (found == results_.end()) return false;
  if (since > 0) {
    Timeline::Add(Timeline::row(), TimelineKind::kWaiting, found->what, since, Timeline::Now());
  }
  *result = found->result;
  spare_.splice(spare_.begin(), results_, found);
  return true;
}

absl::StatusOr<bool> WorkQueue::DoneMore(int64_t seen, double since, int64_t* done) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(status_);
  *done = done_;
  if (done_ <= seen) return false;
  if (since > 0 && !results_.empty()) {
    Timeline::Add(Timeline::row(), TimelineKind::kWaiting, results_.back().what, since,
                  Timeline::Now());
  }
  return true;
}

void WorkQueue::EndWait() {
  bool call;
  {
    std::lock_guard lock(mutex_);
    call = --waiting_ == 0 && called_;
  }
  if (call) work_.notify_all();
}

void WorkQueue::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  work_.notify_all();
}

absl::Status WorkQueue::status() {
  std::lock_guard lock(mutex_);
  return status_;
}

void WorkQueue::Abort(const absl::Status& reason) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_.ok()) abort_reason_ = reason;
    aborting_ = true;
  }
  work_.notify_all();
}

namespace {

// `work`, which lies in `from`, to its place in `active`.
void Place(Works& active, Works& from, Works::iterator work) {
  const auto less_urgent = [&](const Work& other) { return other.urgency < work->urgency; };
  active.splice(std::ranges::find_if(active, less_urgent), from, work);
}

}  // namespace

bool WorkQueue::AwaitCall(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return work_.wait_for(lock, patience, [&] {
    return waiting_ == 0 && (closed_ || called_ || (aborting_ && status_.ok()));
  });
}

void WorkQueue::Call() {
  {
    std::lock_guard lock(mutex_);
    called_ = true;
  }
  work_.notify_all();
}

bool WorkQueue::Rest() {
  std::lock_guard lock(mutex_);
  called_ = !queue_.empty();
  return closed_ && !called_;
}

void WorkQueue::Take(Works& active) {
  if (!arriving_) return;
  std::lock_guard lock(mutex_);
  while (!queue_.empty()) {
    const auto first = queue_.begin();
    for (auto work = active.begin(); work != active.end();) {
      const auto before = work++;
      if (before->lane != first->lane || before->urgency >= first->urgency) continue;
      before->urgency = first->urgency;
      Place(active, active, before);
    }
    Place(active, queue_, first);
  }
  arriving_ = false;
}

absl::Status WorkQueue::aborted() {
  if (!aborting_) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  return abort_reason_;
}

void WorkQueue::Finish(Works& active, Works::iterator work) {
  std::lock_guard lock(mutex_);
  results_.splice(results_.end(), active, work);
  ++done_;
}

void WorkQueue::Fail(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
}

}  // namespace gyre
