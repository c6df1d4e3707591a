// pager.h: executes a plan's copies and host steps on streams of their own, under the steps of an
// iteration.  Events order them, so the calling thread does not wait.  With pages on disk it does,
// until the pages of a step's blocks are read.  Used by the thread that owns the compute stream.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/runtime/device/device.h"
#include "memory/pager/page_copies.h"

namespace gyre {

class Pager {
 public:
  // All arguments but kernels outlive the result.
  //   arena    plan.device_bytes of device memory
  //   pages    plan.page_bytes of pinned host memory
  //   file     plan.disk_bytes or more, with the plan's homes; null if no page is on disk
  //   kernels  needed if the plan rounds
  // Errors: those of making streams and events.
  static absl::StatusOr<std::unique_ptr<Pager>> Create(Device& device, const PagingPlan& plan,
                                                       std::byte* arena, std::byte* pages,
                                                       PageFile* file = nullptr,
                                                       NarrowKernels kernels = {});

  // Goes from the work of step `from` to that of step `to`.  Steps between them have no work.
  // Steps are positions in the plan's order, -1 before the first, their number after the last.
  // The calls of an iteration cover all steps in order.  Work enqueued next on `compute` finds the
  // blocks of step `to` where the plan says.  These do not move until the next call.
  absl::Status Advance(int from, int to, Stream& compute);
  // Enqueues the work of a host step, on pages.  The work may use no stream of the device.
  // Precondition: Advance has reached the step.
  absl::Status RunOnHost(int step, std::function<absl::Status()> work);
  // Whether Advance does anything.
  bool advances(int from, int to) const;
  // Whether a capture may contain all calls of an iteration, but not fewer.  Each iteration is then
  // a replay or all calls anew.
  bool captured_whole() const { return plan_.self_contained; }

  // Work enqueued next on `compute` finds all persistent blocks at home, until the next iteration.
  // Homes on disk are in the file's mapping, to read, or to change after PageFile::Release.
  // Another pager of the same pages begins after this.  With pages on disk, blocks until copies are
  // over.  Errors: DataLoss if a home on disk does not hold the bytes written.
  absl::Status BringHome(Stream& compute);

  // Work enqueued next on `compute` may be an iteration of `next`.  That pager has the same arena,
  // pages, file and homes.  With pages on disk, blocks until copies are over.
  absl::Status HandOver(Pager& next, Stream& compute);

  // Seconds that the compute stream has waited for copies so far.  A GPU does not tell, so 0.
  double stalled_seconds() const;
  // Mean seconds of an iteration's host steps so far.
  double hosted_seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  // Written by work on a stream.
  struct Times {
    Clock::time_point begin;
    std::atomic<Clock::duration> sum = Clock::duration::zero();
    void Begin() { begin = Clock::now(); }
    void End() { sum = sum.load() + (Clock::now() - begin); }
  };
  Pager(const PagingPlan& plan, PagingSchedule schedule, std::byte* pages, PageCopies copies)
      : plan_(plan), schedule_(std::move(schedule)), pages_(pages), copies_(std::move(copies)) {}
  // Calls `waits`, which enqueues waits on `compute`, and measures them as stalls.
  template <typename Waits>
  absl::Status Time(Stream& compute, Waits waits);
  absl::Status Begin(int step, Stream& compute);
  absl::Status End(int step, Stream& compute);
  absl::Status Await(std::span<const int> fetches, std::span<const int> writes, Stream& compute);
  absl::Status Fetch(int index);
  absl::Status WriteBack(int index);

  const PagingPlan& plan_;
  const PagingSchedule schedule_;
  std::byte* const pages_;
  const PageCopies copies_;
  std::unique_ptr<Stream> in_, out_, host_;
  std::unique_ptr<Event> begun_;                 // the iteration
  std::vector<std::unique_ptr<Event>> over_;     // by step; null if nothing waits for it
  std::vector<std::unique_ptr<Event>> fetched_;  // by fetch
  std::vector<std::unique_ptr<Event>> written_;  // by stay; null if not written back
  std::vector<std::unique_ptr<Event>> hosted_;   // by host step
  const Event* last_written_ = nullptr;
  const Event* last_hosted_ = nullptr;
  int64_t host_steps_run_ = 0;
  const std::shared_ptr<Times> stalls_ = std::make_shared<Times>();
  const std::shared_ptr<Times> host_times_ = std::make_shared<Times>();
  std::unique_ptr<DiskCopies> disk_;  // null if no page is there
};

}  // namespace gyre
