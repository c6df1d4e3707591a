// work_queue.cc: see work_queue.h.

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

template <typename Condition>
void WorkQueue::AwaitProgress(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  ++waiting_;
  progress_.wait(lock, condition);
  --waiting_;
}

absl::StatusOr<double> WorkQueue::Wait(int64_t ticket) {
  const double begin = Timeline::on() ? Timeline::Now() : 0;
  std::unique_lock lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  auto found = results_.end();
  AwaitProgress(lock, [&] {
    found = std::ranges::find(results_, ticket, &Work::ticket);
    return !status_.ok() || found != results_.end();
  });
  RETURN_IF_ERROR(status_);
  if (begin > 0) {
    Timeline::Add(Timeline::row(), TimelineKind::kWaiting, found->what, begin, Timeline::Now());
  }
  spare_.splice(spare_.begin(), results_, found);
  return found->result;
}

absl::StatusOr<int64_t> WorkQueue::WaitForMore(int64_t seen) {
  const double begin = Timeline::on() ? Timeline::Now() : 0;
  std::unique_lock lock(mutex_);
  if (status_.ok() && done_ > seen) return done_;
  AwaitProgress(lock, [&] { return !status_.ok() || done_ > seen; });
  RETURN_IF_ERROR(status_);
  if (begin > 0) {
    Timeline::Add(Timeline::row(), TimelineKind::kWaiting, results_.back().what, begin,
                  Timeline::Now());
  }
  return done_;
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

bool WorkQueue::Take(Works& active, std::chrono::milliseconds patience) {
  if (!active.empty() && !arriving_) return true;
  std::unique_lock lock(mutex_);
  const bool came = work_.wait_for(lock, patience, [&] {
    return closed_ || !queue_.empty() || !active.empty() || (aborting_ && status_.ok());
  });
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
  return came;
}

bool WorkQueue::closed() {
  std::lock_guard lock(mutex_);
  return closed_;
}

absl::Status WorkQueue::aborted() {
  if (!aborting_) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  return abort_reason_;
}

void WorkQueue::Finish(Works& active, Works::iterator work) {
  {
    std::lock_guard lock(mutex_);
    results_.splice(results_.end(), active, work);
    ++done_;
  }
  progress_.notify_all();
}

void WorkQueue::Fail(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  progress_.notify_all();
}

}  // namespace gyre
