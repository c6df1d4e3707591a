#include "engine/training/net/run/net_addresses.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {

NetAddresses::NetAddresses(const NetPlan& plan, const NetMemory& memory)
    : plan_(plan), memory_(memory) {
  if (!plan.paging) return;
  stays_.resize(plan.paging->blocks.size());
  for (const Stay& stay : plan.paging->stays) stays_[stay.block].push_back(&stay);
  const std::vector<int>& order = plan.paging->order;
  for (int position = 0; position < static_cast<int>(order.size()); ++position) {
    // A step that has run already runs again.
    if (order[position] == static_cast<int>(at_.size())) at_.push_back(position);
  }
  GYRE_CHECK(at_.size() == plan.trace.trace.steps.size());
  at_.push_back(static_cast<int>(order.size()));
}

std::byte* NetAddresses::AtPosition(int state, int position) const {
  const Placement& at = plan_.memory.placements[state];
  if (at.arena == Arena::kCommunication) return memory_.communication + at.offset;
  if (!plan_.paging) {
    const bool apart = at.offset < memory_.parameters.size();
    return (apart ? memory_.parameters.data() : memory_.device) + at.offset;
  }
  const auto [block, offset] = plan_.paging->states[state];
  if (block < 0) return memory_.device + offset;
  const PagedBlock& page = plan_.paging->blocks[block];
  if (position == kHome || IsOnHost(position)) {
    GYRE_CHECK(page.persistent || position != kHome);
    return (page.on_disk ? memory_.file_homes : memory_.pages) + page.page + offset;
  }
  const auto beyond = std::ranges::upper_bound(stays_[block], position, {},
                                               [](const Stay* s) { return s->first_step; });
  GYRE_CHECK(beyond != stays_[block].begin() && position <= (*std::prev(beyond))->last_step);
  return memory_.device + (*std::prev(beyond))->offset + offset;
}

bool NetAddresses::IsOnHost(int position) const {
  const std::vector<PagingPlan::HostStep>& all = plan_.paging->host_steps;
  const auto at = std::ranges::lower_bound(all, position, {}, &PagingPlan::HostStep::position);
  return at != all.end() && at->position == position;
}

}  // namespace gyre
