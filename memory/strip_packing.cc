#include "memory/strip_packing.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace gyre {
namespace {

struct Placed {
  size_t begin, end;
  int first_step, last_step;
};

// Best fit: gives each item in turn the lowest of the smallest gaps that hold it, where a gap is
// free through the item's whole lifetime; above everything if there is none.
Packing PackInOrder(std::span<const PackItem> items, std::span<const int> order) {
  Packing packing;
  packing.offsets.resize(items.size());
  std::vector<Placed> placed;  // by begin
  placed.reserve(items.size());
  for (int index : order) {
    const PackItem& item = items[index];
    size_t top = 0;  // end of what is alive with the item, so far
    size_t best_gap = SIZE_MAX, best_offset = 0;
    for (const Placed& other : placed) {
      if (other.first_step > item.last_step || other.last_step < item.first_step) continue;
      if (other.begin > top) {
        const size_t gap = other.begin - top;
        if (gap >= item.bytes && gap < best_gap) {
          best_gap = gap;
          best_offset = top;
        }
      }
      top = std::max(top, other.end);
    }
    const size_t offset = best_gap == SIZE_MAX ? top : best_offset;
    packing.offsets[index] = offset;
    packing.extent = std::max(packing.extent, offset + item.bytes);
    const Placed entry{offset, offset + item.bytes, item.first_step, item.last_step};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        entry);
  }
  return packing;
}

}  // namespace

std::vector<size_t> LiveBytes(std::span<const PackItem> items, int steps) {
  std::vector<size_t> live(steps + 1);  // first differences; wrapping around is harmless
  for (const PackItem& item : items) {
    live[item.first_step] += item.bytes;
    live[item.last_step + 1] -= item.bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

Packing PackBlocks(std::span<const PackItem> items) {
  int steps = 0;
  for (const PackItem& item : items) steps = std::max(steps, item.last_step + 1);
  const std::vector<size_t> live = LiveBytes(items, steps);
  const size_t lower_bound = live.empty() ? 0 : *std::max_element(live.begin(), live.end());

  // An item's breadth: the most bytes alive at once during its lifetime.  Two of the orders start
  // with the items alive at the peak, where there is least freedom.
  const size_t n = items.size();
  using Key = std::pair<double, double>;  // largest first; equals in order of declaration
  std::vector<Key> by_bytes, by_breadth_and_bytes, by_breadth_and_duration, by_area;
  for (const PackItem& item : items) {
    const double breadth = static_cast<double>(
        *std::max_element(live.begin() + item.first_step, live.begin() + item.last_step + 1));
    const double duration = item.last_step - item.first_step + 1;
    const double bytes = static_cast<double>(item.bytes);
    by_bytes.emplace_back(bytes, 0);
    by_breadth_and_bytes.emplace_back(breadth, bytes);
    by_breadth_and_duration.emplace_back(breadth, duration);
    by_area.emplace_back(bytes * duration, 0);
  }

  Packing best;
  best.extent = SIZE_MAX;
  std::vector<int> order(n);
  for (const auto* keys : {&by_bytes, &by_breadth_and_bytes, &by_breadth_and_duration, &by_area}) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return (*keys)[a] > (*keys)[b]; });
    Packing packing = PackInOrder(items, order);
    if (packing.extent < best.extent) best = std::move(packing);
    if (best.extent == lower_bound) break;
  }
  return best;
}

}  // namespace gyre
