// page_copies.h: one copy between a block on the device and its page: as it is or, of a block that
// travels in 16 bits, converted on the device, by segments through the plan's staging.  All that
// come in are given one stream, all that go out another: each way has one slot, used in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/runtime/device/device.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Conversions between F32 and 16 bits: `count` numbers of device memory, enqueued on the stream.
// Whoever has kernels gives them, and says by them which 16 bits; memory knows of none.
struct NarrowKernels {
  using Convert = std::function<absl::Status(Stream& stream, const std::byte* from, std::byte* to,
                                             int64_t count)>;
  Convert narrow, widen;
};

class PageCopies {
 public:
  // plan and arena (of its device memory) outlive it.  kernels: needed if the plan rounds.
  PageCopies(const PagingPlan& plan, std::byte* arena, NarrowKernels kernels);

  // Of the stay's page the `bytes` from `at` on, which lie at `host`; a page ends with what no
  // number has.  Enqueue on stream.
  absl::Status In(Stream& stream, int stay, size_t at, const std::byte* host, size_t bytes) const;
  absl::Status Out(Stream& stream, int stay, size_t at, std::byte* host, size_t bytes) const;

 private:
  // Calls segment(offset in the page, bytes) for what fits a slot, until the end or an error.
  template <typename Segment>
  absl::Status ForEachSegment(const PagedBlock& block, size_t at, size_t bytes,
                              Segment segment) const;

  const PagingPlan& plan_;
  std::byte* const arena_;
  const NarrowKernels kernels_;
};

}  // namespace gyre
