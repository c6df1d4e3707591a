// pager.h: a plan's copies, under the steps of an iteration, on streams of their own, and so what
// runs on the host; by events, the calling thread waits for nothing.  Where pages are on disk it
// does: at a step, until what the step needs has been read, or has left the place that the step
// takes.  Used by the thread that owns the compute stream.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/runtime/device/device.h"
#include "memory/pager/disk_copies.h"
#include "memory/pager/page_copies.h"
#include "memory/planner/paging_schedule.h"

namespace gyre {

class Pager {
 public:
  // plan, device, arena (plan.device_bytes of device memory), pages (plan.page_bytes of pinned host
  // memory) and file (of plan.disk_bytes or more, with the plan's homes; null if there are none on
  // disk) outlive the result.  kernels: needed if the plan rounds.  Errors: those of making streams
  // and events.
  static absl::StatusOr<std::unique_ptr<Pager>> Create(Device& device, const PagingPlan& plan,
                                                       std::byte* arena, std::byte* pages,
                                                       PageFile* file = nullptr,
                                                       NarrowKernels kernels = {});

  // Steps are positions in the plan's order.  From the work of step `from` (-1: before the first)
  // to that of `to` (their number: after the last), past those between, which have none; in order,
  // all of an iteration.  What `compute` gets next finds what step `to` touches where the plan
  // says, and nothing moves there until the next call.
  absl::Status Advance(int from, int to, Stream& compute);
  // In place of the work of a step that the plan has on the host, once Advance has come to it:
  // finds what the step touches in pages, and may use no stream of the device.
  absl::Status RunOnHost(int step, std::function<absl::Status()> work);
  // Whether Advance does anything.
  bool advances(int from, int to) const;
  // Whether all calls of an iteration may be part of a capture, of nothing less than it.  Each
  // iteration is then captured and replayed, or made by calls anew.
  bool captured_whole() const { return plan_.self_contained; }

  // What comes after on `compute` finds all that is persistent at home, until the next iteration;
  // homes on disk in the file's mapping, to read, or after PageFile::Release to change.  Another
  // pager of the same pages begins after this.  With pages on disk it blocks until copies are over;
  // DataLoss if what homes hold is not what was written.
  absl::Status BringHome(Stream& compute);

  // What comes after on `compute` may be an iteration of `next`, another pager of this arena, these
  // pages and this file, and of the same homes.  With pages on disk it blocks until copies are
  // over.
  absl::Status HandOver(Pager& next, Stream& compute);

  // That the compute stream has waited for copies, as far as it has come; 0 of a GPU's stream,
  // which does not tell.
  double stalled_seconds() const;
  // That an iteration's work on the host has taken, the mean of those so far.
  double hosted_seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  // Which work that is on a stream writes.
  struct Times {
    Clock::time_point begin;
    std::atomic<Clock::duration> sum = Clock::duration::zero();
    void Begin() { begin = Clock::now(); }
    void End() { sum = sum.load() + (Clock::now() - begin); }
  };
  Pager(const PagingPlan& plan, PagingSchedule schedule, std::byte* pages, PageCopies copies)
      : plan_(plan), schedule_(std::move(schedule)), pages_(pages), copies_(std::move(copies)) {}
  // Enqueues what `waits` does, and counts how long it takes.
  template <typename Waits>
  absl::Status Time(Stream& compute, Waits waits);
  absl::Status Begin(int step, Stream& compute);
  absl::Status End(int step, Stream& compute);
  absl::Status EndIteration(Stream& compute);
  absl::Status Await(std::span<const int> fetches, std::span<const int> writes, Stream& compute);
  bool begins(int step) const;
  bool ends(int step) const { return over_[step] != nullptr; }
  absl::Status Fetch(int index);
  absl::Status WriteBack(int index);

  const PagingPlan& plan_;
  const PagingSchedule schedule_;
  std::byte* const pages_;
  const PageCopies copies_;
  std::unique_ptr<Stream> in_, out_, host_;
  std::unique_ptr<Event> begun_;                 // the iteration
  std::vector<std::unique_ptr<Event>> over_;     // by step; null where nothing waits for it
  std::vector<std::unique_ptr<Event>> fetched_;  // by fetch
  std::vector<std::unique_ptr<Event>> written_;  // by stay; null where it is not
  std::vector<std::unique_ptr<Event>> hosted_;   // by host step
  const Event* last_written_ = nullptr;
  const Event* last_hosted_ = nullptr;
  int64_t host_steps_run_ = 0;
  const std::shared_ptr<Times> stalls_ = std::make_shared<Times>();
  const std::shared_ptr<Times> host_times_ = std::make_shared<Times>();
  std::unique_ptr<DiskCopies> disk_;  // in place of in_ and out_
};

}  // namespace gyre
