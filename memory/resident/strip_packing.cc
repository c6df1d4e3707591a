#include "memory/resident/strip_packing.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <numeric>
#include <utility>

namespace gyre {
namespace {

struct Interval {
  size_t begin, end;  // of addresses
};

struct Placed : Interval {
  int first_step, last_step;
};

// Items by address, in runs of neighbours.  Where lifetimes follow addresses, an item meets all of
// most runs or none, and looks at each as one.
class PlacedItems {
 public:
  void Insert(const Placed& placed);
  // Sets `taken` to what is taken during the item's life, from low to high, but for gaps that are
  // too small for it.
  void Collect(const PackItem& item, std::vector<Interval>& taken) const;

 private:
  struct Run {
    std::vector<Placed> items;  // by begin; one or more
    // Of their steps; and of their addresses the highest end, and the largest gap between two.
    int first_first = 0, last_first = 0, first_last = 0, last_last = 0;
    size_t end = 0, gap = 0;

    void Summarise();
  };
  static constexpr size_t kMostInRun = 64;

  std::vector<Run> runs_;
};

void PlacedItems::Run::Summarise() {
  first_first = first_last = INT_MAX;
  last_first = last_last = -1;
  end = items.front().begin;
  gap = 0;
  for (const Placed& placed : items) {
    first_first = std::min(first_first, placed.first_step);
    last_first = std::max(last_first, placed.first_step);
    first_last = std::min(first_last, placed.last_step);
    last_last = std::max(last_last, placed.last_step);
    if (placed.begin > end) gap = std::max(gap, placed.begin - end);
    end = std::max(end, placed.end);
  }
}

void PlacedItems::Insert(const Placed& placed) {
  const auto begin_of = [](const Run& run) { return run.items.front().begin; };
  auto run = std::ranges::upper_bound(runs_, placed.begin, {}, begin_of);
  if (run != runs_.begin()) --run;
  if (run == runs_.end()) run = runs_.emplace(run);
  auto& items = run->items;
  items.insert(std::ranges::upper_bound(items, placed.begin, {}, &Placed::begin), placed);
  if (items.size() > kMostInRun) {
    const auto middle = items.begin() + kMostInRun / 2;
    Run upper{.items = {middle, items.end()}};
    upper.Summarise();
    items.erase(middle, items.end());
    run = runs_.insert(run + 1, std::move(upper)) - 1;
  }
  run->Summarise();
}

void PlacedItems::Collect(const PackItem& item, std::vector<Interval>& taken) const {
  taken.clear();
  const auto add = [&](size_t begin, size_t end) {
    if (taken.empty() || begin > taken.back().end) {
      taken.push_back({begin, end});
    } else {
      taken.back().end = std::max(taken.back().end, end);
    }
  };
  for (const Run& run : runs_) {
    if (run.first_first > item.last_step || run.last_last < item.first_step) continue;
    if (run.gap < item.bytes && run.last_first <= item.last_step &&
        run.first_last >= item.first_step) {
      add(run.items.front().begin, run.end);
      continue;
    }
    for (const Placed& other : run.items) {
      if (other.first_step > item.last_step || other.last_step < item.first_step) continue;
      add(other.begin, other.end);
    }
  }
}

// Best fit: gives each item in turn the lowest of the smallest gaps that hold it, where a gap is
// free through the item's whole lifetime; above everything if there is none.  Gives up at an
// extent of `most`.
Packing PackInOrder(std::span<const PackItem> items, std::span<const int> order, size_t most) {
  // What lives for a few steps lies among what waits for the backward pass.  Apart, each kind
  // follows time.
  constexpr int kFewSteps = 32;
  Packing packing;
  packing.offsets.resize(items.size());
  PlacedItems brief, lasting;
  std::vector<Interval> among_brief, among_lasting, taken;
  for (int index : order) {
    const PackItem& item = items[index];
    brief.Collect(item, among_brief);
    lasting.Collect(item, among_lasting);
    taken.resize(among_brief.size() + among_lasting.size());
    std::ranges::merge(among_brief, among_lasting, taken.begin(), {}, &Interval::begin,
                       &Interval::begin);
    size_t top = 0;  // end of what is taken, so far
    size_t best_gap = SIZE_MAX, best_offset = 0;
    for (const Interval& other : taken) {
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
    if (packing.extent >= most) break;
    PlacedItems& alike = item.last_step - item.first_step < kFewSteps ? brief : lasting;
    alike.Insert({{offset, offset + item.bytes}, item.first_step, item.last_step});
  }
  return packing;
}

// The items in a time that counts only steps with which one begins: between two of them none comes
// to be alive beside another.  So how many steps something takes that holds nothing else, such as
// an update that is cut into tiles, does not change where anything lies.
std::vector<PackItem> ByBegins(std::span<const PackItem> items, int steps) {
  std::vector<int> times(steps);  // by step: those that begin something, up to it
  for (const PackItem& item : items) times[item.first_step] = 1;
  std::partial_sum(times.begin(), times.end(), times.begin());
  std::vector<PackItem> of(items.begin(), items.end());
  for (PackItem& item : of) {
    item.first_step = times[item.first_step] - 1;
    item.last_step = times[item.last_step] - 1;
  }
  return of;
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

Packing PackBlocks(std::span<const PackItem> blocks) {
  int steps = 0;
  for (const PackItem& item : blocks) steps = std::max(steps, item.last_step + 1);
  const std::vector<PackItem> items = ByBegins(blocks, steps);
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
    Packing packing = PackInOrder(items, order, best.extent);
    if (packing.extent < best.extent) best = std::move(packing);
    if (best.extent == lower_bound) break;
  }
  return best;
}

}  // namespace gyre
