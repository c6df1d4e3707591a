// net_addresses.h: the addresses of a planned net's states, at each step if the plan pages.
// Immutable.
#pragma once

#include <span>
#include <vector>

#include "engine/training/net/plan/net_plan.h"

namespace gyre {

struct NetMemory {
  std::byte* device = nullptr;         // arena
  std::byte* communication = nullptr;  // may be null if the plan does not train
  std::byte* pages = nullptr;          // if the plan pages
  std::byte* file_homes = nullptr;     // if the plan pages to disk: the mapped file
  // Holds the parameters that no layer writes, in place of the device arena's first bytes.  Empty
  // if the plan pages, or if the arena has them.
  std::span<std::byte> parameters = {};
};

class NetAddresses {
 public:
  static constexpr int kHome = -1;  // between iterations

  // `plan` and the memory must outlive the object.
  NetAddresses(const NetPlan& plan, const NetMemory& memory);

  // The first position of a step of the trace.  Also for -1, before all, and for their number,
  // after.
  int At(int step) const { return step < 0 || at_.empty() ? step : at_[step]; }
  // Whether the plan runs the step on the host.  All that it touches, but pinned states, is then in
  // pages.
  bool OnHost(int step) const { return plan_.paging && IsOnHost(At(step)); }
  // A state's address at a step, or at a position of the plan's order.
  std::byte* Of(int state, int step = kHome) const { return AtPosition(state, At(step)); }
  std::byte* AtPosition(int state, int position) const;

 private:
  bool IsOnHost(int position) const;

  const NetPlan& plan_;
  const NetMemory memory_;
  std::vector<std::vector<const Stay*>> stays_;  // by block of the paging plan, in order
  std::vector<int> at_;                          // by step: its position; empty: equal
};

}  // namespace gyre
