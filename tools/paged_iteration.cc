#include "tools/paged_iteration.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "memory/pager.h"
#include "tools/median.h"

namespace gyre {

absl::StatusOr<double> RunPagedIterations(const AccessTrace& trace, const PagingPlan& plan,
                                          double bandwidth, int rounds) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const std::unique_ptr<Device> device =
      NewSimDevice({.capacity_bytes = plan.device_bytes, .copy_bytes_per_s = bandwidth});
  ASSIGN_OR_RETURN(const Buffer arena,
                   Buffer::Allocate(*device, MemoryKind::kDevice, plan.device_bytes));
  ASSIGN_OR_RETURN(const Buffer pages,
                   Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan.page_bytes));
  const int positions = static_cast<int>(plan.order.size());
  ASSIGN_OR_RETURN(const auto pager, Pager::Create(*device, plan, arena.data(), pages.data()));
  ASSIGN_OR_RETURN(const auto compute, device->NewStream());
  std::vector<double> seconds;
  for (int round = -1; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int at = 0; at < positions; ++at) {
      RETURN_IF_ERROR(pager->Advance(at - 1, at, *compute));
      RETURN_IF_ERROR(compute->Call([work = Seconds(trace.steps[plan.order[at]].seconds)] {
        std::this_thread::sleep_until(Clock::now() + work);
        return absl::OkStatus();
      }));
    }
    RETURN_IF_ERROR(pager->Advance(positions - 1, positions, *compute));
    RETURN_IF_ERROR(compute->Synchronize());
    if (round >= 0) seconds.push_back(Seconds(Clock::now() - start).count());
  }
  return Median(seconds);
}

AccessTrace WithWaking(AccessTrace trace, double resident) {
  double slept = 0;
  for (const TraceStep& step : trace.steps) slept += step.seconds;
  const double waking = (resident - slept) / static_cast<double>(trace.steps.size());
  for (TraceStep& step : trace.steps) step.seconds += std::max(waking, 0.0);
  return trace;
}

}  // namespace gyre
