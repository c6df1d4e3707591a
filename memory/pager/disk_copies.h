// disk_copies.h: the copies of a plan some of whose pages are on disk.  Private to memory.
//
// A stream cannot wait for a file, a thread can: one fetches, one writes back, each in the order in
// which it is told, with a stream and a queue of transfers of its own, and slots of staging between
// the two.  The thread that tells them waits for one thing alone: an event must be recorded before
// a stream is told to wait for it, or before it is recorded again.
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
  // All outlive it.
  struct PagingContext {
    const PagingPlan& plan;
    const PagingSchedule& schedule;
    PageFile& file;
    const PageCopies& copies;
    std::byte* pages;
    const Event& begun;                                  // the iteration
    const std::vector<std::unique_ptr<Event>>& over;     // by step; recorded by the caller
    const std::vector<std::unique_ptr<Event>>& fetched;  // by fetch, recorded here
    const std::vector<std::unique_ptr<Event>>& written;  // by stay: it has left the device; here
  };
  static absl::StatusOr<std::unique_ptr<DiskCopies>> Create(Device& device,
                                                            const PagingContext& context);
  DiskCopies(const DiskCopies&) = delete;
  DiskCopies& operator=(const DiskCopies&) = delete;
  ~DiskCopies();  // finishes what it was told

  // Errors of all: the first of a copy, of what it waited for, or of the file; it stays.
  // Once `begun` is recorded.  From now on homes are not the caller's.
  absl::Status BeginIteration();
  // Once `over` of what they wait for is recorded.
  absl::Status Fetch(int index);
  absl::Status WriteBack(int stay);
  // Block until the event of the last Fetch or WriteBack of it is recorded.
  absl::Status AwaitFetch(int index);
  absl::Status AwaitWriteBack(int stay);
  // Blocks until all copies are over, and all homes on disk have been found as they were written.
  absl::Status BringHome();
  // Blocks until all copies are over; who has homes is the next one's affair, null: nobody's.
  absl::Status HandOver(DiskCopies* next);

 private:
  enum class What : uint8_t { kCopy, kTakeHomes, kFinish };
  struct Job {
    What what = What::kCopy;
    int index = 0;  // of the fetch or stay
    struct Write {  // that must be over
      int stay = 0;
      int64_t times = 0;
      bool in_file = false;  // else it need only have left the device
    };
    std::vector<Write> after = {};
    int64_t takes = 0;  // of homes, likewise
  };
  struct PageSegment {
    int index = 0;
    int stay = 0;
    size_t at = 0, bytes = 0;  // of the page
    int slot = -1;             // none if the page is in host memory
    bool last = false;
  };
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<PageQueue> queue;
    std::vector<std::unique_ptr<Event>> copied;  // by slot
    std::byte* slots = nullptr;
    std::deque<Job> jobs;
    int64_t told = 0, finished = 0;  // kFinish
    std::thread thread;
  };
  // A job being cut into segments.
  struct Cut {
    Job job;
    size_t at = 0;
  };

  explicit DiskCopies(const PagingContext& context);
  absl::Status Tell(Lane& lane, Job job);
  absl::Status Finish(Lane& lane);
  // The lane's next job if it may begin.  wait: until there is one; then none is the end.
  std::optional<Cut> Next(Lane& lane, bool wait);
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
  PageSegment CutSegment(Cut& cut, int stay, int& slot) const;
  const PagedBlock& BlockOf(int stay) const {
    return context_.plan.blocks[context_.plan.stays[stay].block];
  }
  std::byte* SlotOf(const Lane& lane, int slot) const {
    return lane.slots + static_cast<size_t>(slot) * context_.plan.staging.slot_bytes;
  }

  const PagingContext context_;
  bool homes_are_out_ = true;                   // with the caller, when none is at work
  int64_t takes_ = 0;                           // how often they were taken from it
  std::vector<int64_t> fetches_, write_backs_;  // how often it was told
  std::mutex mutex_;                            // of all below, and of lanes' jobs and counts
  std::condition_variable changed_;
  bool stopping_ = false;
  absl::Status status_;
  std::vector<int64_t> fetched_, left_, stored_;  // how often it has been done
  int64_t taken_ = 0;                             // likewise
  Lane in_, out_;
};

}  // namespace gyre
