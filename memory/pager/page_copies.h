// page_copies.h: copies between a block on the device and its page.  A 16-bit copy is converted on
// the device, in segments through the plan's device staging.  Each direction has one slot, used in
// order, so all fetches must use one stream and all write-backs another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/runtime/device/device.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Convert `count` numbers in device memory between F32 and 16 bits.  Enqueue on stream.  The
// caller's kernels choose the 16-bit type.
struct NarrowKernels {
  using Convert = std::function<absl::Status(Stream& stream, const std::byte* from, std::byte* to,
                                             int64_t count)>;
  Convert narrow, widen;
};

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

}  // namespace gyre
