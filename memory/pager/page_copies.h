// page_copies.h: copies between a block on the device and its page, in host memory or on disk, as
// work on streams.  All fetches use one stream and all write-backs another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/runtime/device/device.h"
#include "memory/pager/disk/page_file.h"
#include "memory/planner/paging_schedule.h"

namespace gyre {

// Convert `count` numbers in device memory between F32 and 16 bits.  Enqueue on stream.  The
// caller's kernels choose the 16-bit type.
struct NarrowKernels {
  using Convert = std::function<absl::Status(Stream& stream, const std::byte* from, std::byte* to,
                                             int64_t count)>;
  Convert narrow, widen;
};

// Copies from and to host memory.  A 16-bit copy is converted on the device, in segments through
// the plan's device staging, of which each direction has one slot.
class PageCopies {
 public:
  // plan and arena (its device memory) outlive the result.  A plan that rounds needs kernels.
  PageCopies(const PagingPlan& plan, std::byte* arena, NarrowKernels kernels);

  // Copy `bytes` of the stay's page, from offset `at` on, from or to `host`.  Padding at the end of
  // a 16-bit page is not copied.  Enqueue on stream.
  absl::Status In(Stream& stream, int stay, size_t at, const std::byte* host, size_t bytes) const;
  absl::Status Out(Stream& stream, int stay, size_t at, std::byte* host, size_t bytes) const;

 private:
  const PagingPlan& plan_;
  std::byte* const arena_;
  const NarrowKernels kernels_;
};

// Copies from and to the disk.  A page moves in segments through staging slots, in turn.  Each way
// one stream of host code begins the file's transfers, as far ahead as slots are free.  Another
// awaits them.  The pager's streams copy between slots and device.  Events by slot order the three.
class DiskCopies {
 public:
  // All arguments outlive the DiskCopies.  `pages` is the host memory of pages and staging.
  static absl::StatusOr<std::unique_ptr<DiskCopies>> Create(Device& device, const PagingPlan& plan,
                                                            PageFile& file,
                                                            const PageCopies& copies,
                                                            std::byte* pages);

  // Takes the homes from the caller, who changes them only before `begun`.
  absl::Status TakeHomes(const Event& begun);
  // Enqueue the copy of a block from or to its page on disk.
  absl::Status Fetch(const PagingSchedule::ScheduledWork& fetch, Stream& in);
  absl::Status WriteBack(int stay, Stream& out);
  // Blocks until the page of the stay's last Fetch has been read.  Errors: the read's.
  absl::Status AwaitRead(int stay) const;
  // Blocks until copies are over and homes on disk are checked, then gives homes to the caller.
  absl::Status BringHome(Stream& in, Stream& out);
  // Blocks until copies are over.  Tells `next`, unless null, who has the homes.
  absl::Status HandOver(DiskCopies* next, Stream& in, Stream& out);

 private:
  struct TransferSlot {
    int index = 0;
    std::byte* memory = nullptr;
    std::unique_ptr<Event> copied = {};             // from or to the device
    std::unique_ptr<Event> begun = {}, ended = {};  // the file's transfer
    size_t begin = 0, end = 0;                      // its range of the file
  };
  struct Lane {
    void (PageQueue::*const transfer)(int slot, size_t offset, std::byte* memory, size_t bytes);
    std::vector<TransferSlot> slots = {};
    size_t next = 0;  // slot
    std::unique_ptr<PageQueue> queue = {};
    std::unique_ptr<Stream> begins = {}, ends = {};  // last: their work uses the others
  };

  DiskCopies(const PagingPlan& plan, const PageCopies& copies)
      : plan_(plan), copies_(copies), reads_(plan.stays.size()), writes_(plan.stays.size()) {}
  template <typename Copy>
  absl::Status ForEachSegment(Lane& lane, const PagedBlock& block, Copy copy);
  absl::Status Transfer(Lane& lane, TransferSlot& slot, const PagedBlock& block, size_t at,
                        size_t bytes);
  absl::Status Finish(Stream& in, Stream& out);
  absl::Status CheckHomes();

  const PagingPlan& plan_;
  const PageCopies& copies_;
  bool homes_are_out_ = true;                           // the caller has them; nothing is under way
  std::vector<std::unique_ptr<Event>> reads_, writes_;  // by stay; null if not of the disk
  Lane in_{&PageQueue::Read}, out_{&PageQueue::Write};
};

}  // namespace gyre
