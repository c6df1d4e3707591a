// disk_copies.h: the copies of a plan with pages on disk.  Private to memory.
//
// A stream cannot wait for a file, but a thread can.  One thread fetches and one writes back, each
// in call order.  Each has its own stream, PageQueue and staging slots between the two.  The caller
// waits only for an event to be recorded, before a stream waits for it or it is recorded again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/runtime/device/device.h"
#include "memory/pager/disk/page_file.h"
#include "memory/pager/page_copies.h"
#include "memory/planner/paging_schedule.h"

namespace gyre {

class DiskCopies {
 public:
  // All referents outlive the DiskCopies.
  struct PagingContext {
    const PagingPlan& plan;
    const PagingSchedule& schedule;
    PageFile& file;
    const PageCopies& copies;
    std::byte* pages;
    const Event& begun;                                  // the iteration; recorded by the caller
    const std::vector<std::unique_ptr<Event>>& over;     // by step; recorded by the caller
    const std::vector<std::unique_ptr<Event>>& fetched;  // by fetch; recorded here
    const std::vector<std::unique_ptr<Event>>& written;  // by stay, when it left the device; here
  };
  static absl::StatusOr<std::unique_ptr<DiskCopies>> Create(Device& device,
                                                            const PagingContext& context);
  DiskCopies(const DiskCopies&) = delete;
  DiskCopies& operator=(const DiskCopies&) = delete;
  ~DiskCopies();  // finishes all jobs

  // Errors of all calls: the first of a copy, of work that it waited for, or of the file.

  // Takes the homes from the caller.  Precondition: `begun` is recorded.
  absl::Status BeginIteration();
  // Precondition: `over` is recorded for each step that the copy waits for.
  absl::Status Fetch(int index);
  absl::Status WriteBack(int stay);
  // Block until the event of the last Fetch or WriteBack of it is recorded.
  absl::Status AwaitFetch(int index);
  absl::Status AwaitWriteBack(int stay);
  // Blocks until copies are over and homes on disk are checked, then gives homes to the caller.
  absl::Status BringHome();
  // Blocks until all write-backs are over.  Tells `next`, unless null, who has the homes.
  absl::Status HandOver(DiskCopies* next);

 private:
  enum class What : uint8_t { kCopy, kTakeHomes, kFinish };
  struct Job {
    What what = What::kCopy;
    int index = 0;  // of the fetch or stay
    struct Write {  // a write-back, which must have been done so many times
      int stay = 0;
      int64_t times = 0;
      bool in_file = false;  // done when in the file, otherwise when off the device
    };
    std::vector<Write> after = {};
    int64_t takes = 0;  // of homes; so many must have been done
    size_t at = 0;      // end of the segments cut so far
  };
  struct PageSegment {
    int index = 0;
    int stay = 0;
    size_t at = 0, bytes = 0;  // range of the page
    int slot = -1;             // -1: the page is in host memory
    bool last = false;
  };
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<PageQueue> queue;
    std::vector<std::unique_ptr<Event>> copied;  // by slot
    std::byte* slots = nullptr;
    std::deque<Job> jobs;
    int64_t told = 0, finished = 0;  // kFinish jobs
    std::thread thread;
  };

  explicit DiskCopies(const PagingContext& context);
  absl::Status Tell(Lane& lane, Job job);
  absl::Status Finish(Lane& lane);
  // The lane's next job if it may begin.  With `wait` blocks for one, and none means the end.
  std::optional<Job> Next(Lane& lane, bool wait);
  bool MayBegin(const Job& job) const;
  template <typename Condition>
  absl::Status Await(Condition condition);
  template <typename Change>
  void Note(Change change);

  absl::Status RunIn();
  absl::Status RunOut();
  absl::Status BeginFetch(const PageSegment& segment);
  absl::Status EndFetch(const PageSegment& segment);
  absl::Status BeginWriteBack(const PageSegment& segment);
  absl::Status EndWrite(std::deque<PageSegment>& writing);
  absl::Status CheckHomes();
  PageSegment CutSegment(Job& job, int stay, int& slot) const;
  const PagedBlock& BlockOf(int stay) const { return context_.plan.BlockOf(stay); }
  std::byte* SlotOf(const Lane& lane, int slot) const {
    return lane.slots + static_cast<size_t>(slot) * context_.plan.staging.slot_bytes;
  }

  const PagingContext context_;
  bool homes_are_out_ = true;                   // the caller has them; no job is left
  int64_t takes_ = 0;                           // times that they were taken from the caller
  std::vector<int64_t> fetches_, write_backs_;  // jobs so far, by fetch and by stay
  std::mutex mutex_;                            // of all below, and of lanes' jobs and counts
  std::condition_variable changed_;
  bool stopping_ = false;
  absl::Status status_;
  std::vector<int64_t> fetched_, left_, stored_;  // jobs done
  int64_t taken_ = 0;                             // takes done
  Lane in_, out_;
};

}  // namespace gyre
