#include "memory/planner/page_assignment.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "memory/resident/strip_packing.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

// Each way: while one is copied and one waits for its turn, the disk has two to work on.
constexpr int kSlots = 4;
// From there on a drive is as fast as it gets.
constexpr size_t kMostSlotBytes = size_t{4} << 20;
// Of the host memory, for the staging; more where even the least would be more.
constexpr size_t kStagingShare = 8;

Staging StagingOf(size_t host_bytes) {
  const size_t slot = host_bytes / kStagingShare / (2 * kSlots) / kPlanAlignment * kPlanAlignment;
  return {.slot_bytes = std::clamp(slot, kPlanAlignment, kMostSlotBytes), .slots = kSlots};
}

// A block that has a page.
struct Paged {
  int block = 0;
  int first = 0, last = 0;  // positions: of a page that is shared over time, when it is in use
  int copies = 0;           // in an iteration
  // The least that it waits until it is fetched.
  double seconds = std::numeric_limits<double>::infinity();
};

std::vector<Paged> FindPaged(const AccessTrace& trace, const PagingPlan& plan) {
  std::vector<double> begins = {0};
  for (const int step : plan.order) {
    begins.push_back(begins.back() + trace.steps[step].seconds);
  }
  std::vector<Paged> all(plan.blocks.size());
  std::vector<int> out(plan.blocks.size(), -1), before(plan.blocks.size(), -1);
  // The stays before the iteration's first are its last.
  for (size_t s = 0; s < plan.stays.size(); ++s) before[plan.stays[s].block] = static_cast<int>(s);
  for (size_t s = 0; s < plan.stays.size(); ++s) {
    const Stay& stay = plan.stays[s];
    Paged& paged = all[stay.block];
    paged.copies += static_cast<int>(stay.fetched) + static_cast<int>(stay.written_back);
    if (stay.written_back && out[stay.block] < 0) out[stay.block] = stay.last_step;
    const int left = before[stay.block];
    if (stay.fetched) {
      const double around = left < static_cast<int>(s) ? 0 : begins.back();
      paged.seconds = std::min(
          paged.seconds, around + begins[stay.first_step] - begins[plan.stays[left].last_step + 1]);
      paged.last = stay.first_step;
    }
    if (stay.written_back) paged.last = std::max(paged.last, stay.last_step);
    before[stay.block] = static_cast<int>(s);
  }
  for (const auto& [position, blocks] : plan.host_steps) {
    for (const int b : blocks) {
      out[b] = out[b] < 0 ? position : std::min(out[b], position);
      all[b].last = std::max(all[b].last, position);
    }
  }
  std::vector<Paged> paged;
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    if (!plan.blocks[b].persistent && out[b] < 0) continue;
    all[b].block = static_cast<int>(b);
    all[b].first = std::max(out[b], 0);
    all[b].last = std::max(all[b].first, all[b].last);
    paged.push_back(all[b]);
  }
  return paged;
}

// Those of `paged` that are, or are not, on disk: their extent, and of that the homes'.
struct Extent {
  size_t bytes = 0, homes = 0;
};
Extent Pack(const std::vector<Paged>& paged, bool on_disk, PagingPlan& plan) {
  Extent extent;
  std::vector<PackItem> items;
  std::vector<PagedBlock*> shared;
  for (const Paged& of : paged) {
    PagedBlock& block = plan.blocks[of.block];
    if (block.on_disk != on_disk) continue;
    if (block.persistent) {
      block.page = extent.homes;
      extent.homes += block.page_bytes;
    } else {
      items.push_back({block.page_bytes, of.first, of.last});
      shared.push_back(&block);
    }
  }
  const Packing packing = PackBlocks(items);
  for (size_t i = 0; i < items.size(); ++i) shared[i]->page = extent.homes + packing.offsets[i];
  extent.bytes = extent.homes + packing.extent;
  return extent;
}

// Puts into `bytes` of host memory, were there no gaps, what is wanted there most.
void Share(const std::vector<Paged>& wanted, size_t bytes, bool given, PagingPlan& plan) {
  std::vector<size_t> live(plan.order.size());
  size_t homes = 0;
  for (const Paged& of : wanted) {
    const PagedBlock& block = plan.blocks[of.block];
    if (given && block.persistent && !block.on_disk) homes += block.page_bytes;
  }
  size_t most = 0;  // live at once
  for (const Paged& of : wanted) {
    PagedBlock& block = plan.blocks[of.block];
    if (block.persistent) {
      if (given) continue;
      block.on_disk = homes + most + block.page_bytes > bytes;
      homes += block.on_disk ? 0 : block.page_bytes;
      continue;
    }
    const auto first = live.begin() + of.first, end = live.begin() + of.last + 1;
    const size_t with = *std::max_element(first, end) + block.page_bytes;
    block.on_disk = homes + with > bytes;
    if (block.on_disk) continue;
    std::for_each(first, end, [&block](size_t& at) { at += block.page_bytes; });
    most = std::max(most, with);
  }
}

}  // namespace

absl::Status GivePages(const AccessTrace& trace, const PagingLimits& limits, PagingPlan& plan) {
  const std::vector<Paged> paged = FindPaged(trace, plan);
  const Staging staging = StagingOf(limits.host_bytes);
  const bool given = limits.homes != nullptr;
  const bool some_on_disk =
      std::ranges::any_of(plan.blocks, [](const PagedBlock& block) { return block.on_disk; });
  Extent host = Pack(paged, false, plan);
  // Homes leave room for the staging in any case: another net may need it.
  const size_t homes_end = host.homes + (host.homes > 0 ? staging.bytes() : 0);
  if (some_on_disk || std::max(host.bytes, homes_end) > limits.host_bytes) {
    if (!plan.host_steps.empty()) {
      return absl::ResourceExhaustedError(
          "host memory: with steps on the host it holds no staging for pages on disk");
    }
    const size_t least = staging.bytes() + (given ? host.homes : 0);
    if (least > limits.host_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("host memory: expected at least ", BytesText(least), OfText(trace),
                       " for copies from and to the disk and what cannot lie there, got ",
                       BytesText(limits.host_bytes)));
    }
    const size_t room = limits.host_bytes - staging.bytes();
    std::vector<Paged> wanted = paged;
    std::ranges::stable_sort(wanted, {}, [&plan](const Paged& of) {
      return std::tuple(-of.copies, of.seconds, plan.blocks[of.block].page_bytes);
    });
    // Gaps may cost more than there is; nothing at all has none.
    for (size_t bytes = room;; bytes -= std::min(bytes, host.bytes - room)) {
      Share(wanted, bytes, given, plan);
      host = Pack(paged, false, plan);
      if (host.bytes <= room) break;
    }
    const Extent disk = Pack(paged, true, plan);
    plan.disk_bytes = disk.bytes;
    plan.disk_home_bytes = disk.homes;
  }
  plan.page_bytes = host.bytes;
  if (plan.disk_bytes > 0) {
    plan.staging = staging;
    plan.staging.offset = host.bytes;
    plan.page_bytes += staging.bytes();
  }
  for (const Stay& stay : plan.stays) {
    const PagedBlock& block = plan.blocks[stay.block];
    if (!block.on_disk) continue;
    if (stay.fetched) plan.disk_read_bytes += block.page_bytes;
    if (stay.written_back) plan.disk_written_bytes += block.page_bytes;
  }
  return absl::OkStatus();
}

}  // namespace gyre
