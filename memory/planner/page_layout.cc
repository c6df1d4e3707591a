#include "memory/planner/page_layout.h"

#include <algorithm>
#include <limits>
#include <map>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

class Layout {
 public:
  Layout(const LayoutInput& input, const LayoutPolicy& policy)
      : input_(input),
        policy_(policy),
        steps_(static_cast<int>(input.begins.size()) - 1),
        blocks_(input.accesses.size()),
        touched_(static_cast<size_t>(steps_)),
        on_host_(static_cast<size_t>(steps_)),
        fetches_since_(policy.longest_free ? -1 : kNever) {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      blocks_[b].page_valid = input.persistent[b];
      for (const BlockAccess& access : input.accesses[b]) {
        (access.on_host ? on_host_ : touched_)[access.step].push_back(static_cast<int>(b));
      }
    }
    if (input.begin < input.end) free_[input.begin] = {input.end, -1};
  }

  std::vector<Stay> Run() {
    for (int step = 0; step < steps_; ++step) {
      Enter(step);
      for (const int b : touched_[step]) Touch(b, step);
      for (const int b : on_host_[step]) TouchPage(b);
    }
    std::ranges::stable_sort(
        stays_, {}, [](const Stay& stay) { return std::pair(stay.first_step, stay.block); });
    return std::move(stays_);
  }

 private:
  struct BlockState {
    size_t next = 0;          // access, that is not over
    int stay = -1;            // that it is in
    bool page_valid = false;  // the page has its value
    // Of making room by its going, until it is touched again; and of that a byte's share.
    double cost = 0, density = 0;
  };

  const BlockAccess& NextOf(int b) const { return input_.accesses[b][blocks_[b].next]; }
  bool HasNext(int b) const { return blocks_[b].next < input_.accesses[b].size(); }
  // Whether anybody reads, before it is written anew, what the block has.
  bool Live(int b) const { return HasNext(b) ? NextOf(b).reads : bool{input_.persistent[b]}; }
  bool TouchedAt(int b, int step) const { return HasNext(b) && NextOf(b).step == step; }
  size_t PlaceOf(int b) const { return stays_[blocks_[b].stay].offset; }
  size_t EndOf(int b) const { return PlaceOf(b) + input_.bytes[b]; }

  // Gives all that the step touches a place.
  void Enter(int step) {
    const size_t before = stays_.size();
    std::vector<int> absent;
    for (const int b : touched_[step]) {
      if (blocks_[b].stay < 0) absent.push_back(b);
    }
    // The longest first: they are the hardest to place.
    std::ranges::stable_sort(absent, std::greater(), [&](int b) { return input_.bytes[b]; });
    for (const int b : absent) {
      const size_t place = FindPlace(b, step);
      if (place == kNoPlace) return LayOutAnew(step, before);
      Begin(b, step, place);
    }
  }

  void Touch(int b, int step) {
    const BlockAccess& access = NextOf(b);
    BlockState& block = blocks_[b];
    if (access.writes) block.page_valid = false;
    stays_[block.stay].last_step = step;
    victims_.erase({block.density, PlaceOf(b)});
    ++block.next;
    // What nobody reads, or who reads it finds at home or in the page, has no reason to stay.
    if (!Live(b) || !HasNext(b) || NextOf(b).on_host) return End(b);
    SetCost(b);
    victims_[{block.density, PlaceOf(b)}] = b;
  }

  void TouchPage(int b) {
    BlockState& block = blocks_[b];
    const BlockAccess& access = NextOf(b);
    GYRE_CHECK(block.stay < 0 && (block.page_valid || !access.reads || !HasValue(b)));
    block.page_valid = true;  // what is there, written or not, is there alone
    ++block.next;
  }

  // At `place`, where whatever lies goes.
  void Begin(int b, int step, size_t place) {
    auto at = resident_.lower_bound(place);
    if (at != resident_.begin() && EndOf(std::prev(at)->second) > place) --at;
    while (at != resident_.end() && at->first < place + input_.bytes[b]) End((at++)->second);
    int since = -1;
    TakeFree(place, place + input_.bytes[b], &since);
    blocks_[b].stay = static_cast<int>(stays_.size());
    stays_.push_back({.block = b,
                      .first_step = step,
                      .last_step = step,
                      .offset = place,
                      .fetched = NextOf(b).reads && HasValue(b)});
    // Fetches are in the order of steps: the next cannot begin before this one.
    if (stays_.back().fetched) fetches_since_ = std::max(fetches_since_, since);
    resident_[place] = b;
  }
  // Scratch may read what it writes itself.
  bool HasValue(int b) const { return input_.persistent[b] || blocks_[b].next > 0; }

  void End(int b) {
    BlockState& block = blocks_[b];
    Stay& stay = stays_[block.stay];
    stay.written_back = Live(b) && !block.page_valid;
    if (stay.written_back) block.page_valid = true;
    Leave(b, stay.last_step);
  }
  void Leave(int b, int free_since) {
    BlockState& block = blocks_[b];
    const size_t place = PlaceOf(b);
    victims_.erase({block.density, place});
    resident_.erase(place);
    free_[place] = {place + input_.bytes[b], free_since};
    block.stay = -1;
  }

  // All that is there goes, and what the step touches lies side by side; stays from `begun` on,
  // which this step has begun, have not been.
  void LayOutAnew(int step, size_t begun) {
    while (!resident_.empty()) {
      const int b = resident_.begin()->second;
      if (static_cast<size_t>(blocks_[b].stay) < begun) {
        End(b);
      } else {
        Leave(b, step - 1);
      }
    }
    stays_.resize(begun);
    size_t place = input_.begin;
    for (const int b : touched_[step]) {
      Begin(b, step, place);
      place += input_.bytes[b];
    }
    GYRE_CHECK(place <= input_.end);
  }

  void SetCost(int b) {
    BlockState& block = blocks_[b];
    const auto bytes = static_cast<double>(input_.bytes[b]);
    double seconds = input_.copies[b].in;
    if (!block.page_valid) seconds += input_.copies[b].out;
    const double until = input_.begins[NextOf(b).step];
    const double since = policy_.by_time ? input_.begins[stays_[block.stay].last_step + 1] : 0;
    block.cost = seconds / (1e-9 + std::max(until - since, 0.0));
    block.density = block.cost / bytes;
  }

  // Where a block of this step is to lie; kNoPlace if others of the step are in the way.
  size_t FindPlace(int b, int step) {
    const size_t free = FindFree(input_.bytes[b]);
    return free != kNoPlace ? free : FindOccupied(input_.bytes[b], step);
  }

  // Where nothing lies: what is free for longest, as far as fetches gain by it; of these the
  // shortest gap that will do, so that long ones stay whole.
  size_t FindFree(size_t bytes) {
    size_t found = kNoPlace;
    std::pair<int, size_t> best;
    for (auto gap = free_.begin(); gap != free_.end();) {
      size_t end = gap->first;
      auto beyond = gap;
      while (beyond != free_.end() && beyond->first == end) {
        end = beyond->second.end;
        // As one with the piece before it where no fetch would tell them apart.
        const auto before = beyond == gap ? beyond : std::prev(beyond);
        const bool alike = std::max(before->second.since, beyond->second.since) <= fetches_since_;
        if (before == beyond || !alike) {
          ++beyond;
        } else {
          before->second.end = end;
          beyond = free_.erase(beyond);
        }
      }
      const size_t length = end - gap->first;
      for (; gap != beyond && gap->first + bytes <= end; ++gap) {
        int since = fetches_since_;
        for (auto at = gap; at != beyond && at->first < gap->first + bytes; ++at) {
          since = std::max(since, at->second.since);
        }
        const std::pair rank(since, length);
        if (found != kNoPlace && rank >= best) continue;
        found = gap->first;
        best = rank;
      }
      gap = beyond;
    }
    return found;
  }

  // Which blocks are to go, side by side: from the end of one that stays on, or up to its begin.
  // Those that a byte's room costs least by are tried, kMostTried of them.
  size_t FindOccupied(size_t bytes, int step) const {
    size_t found = kNoPlace;
    std::pair<double, int> best;
    const auto consider = [&](size_t place, auto at) {
      std::pair<double, int> rank(0, -1);
      for (; at != resident_.end() && at->first < place + bytes; ++at) {
        const int b = at->second;
        if (TouchedAt(b, step)) return;
        rank.first += blocks_[b].cost;
        rank.second = std::max(rank.second, stays_[blocks_[b].stay].last_step);
        if (found != kNoPlace && rank.first > best.first) return;
      }
      if (found != kNoPlace && rank >= best) return;
      found = place;
      best = rank;
    };
    int tried = 0;
    for (const auto& [key, b] : victims_) {
      if (TouchedAt(b, step)) continue;
      const auto at = resident_.find(key.second);
      const size_t low = at == resident_.begin() ? input_.begin : EndOf(std::prev(at)->second);
      if (low + bytes <= input_.end) consider(low, at);
      const auto beyond = std::next(at);
      const size_t high = beyond == resident_.end() ? input_.end : beyond->first;
      if (high >= input_.begin + bytes) {
        auto first = at;
        while (first != resident_.begin() && EndOf(std::prev(first)->second) > high - bytes) {
          --first;
        }
        consider(high - bytes, first);
      }
      if (++tried >= kMostTried && found != kNoPlace) break;
    }
    return found;
  }

  // Takes what is free there out of `free_`; `since`: when all of it was.
  void TakeFree(size_t begin, size_t end, int* since) {
    auto at = std::prev(free_.upper_bound(begin));
    while (at != free_.end() && at->first < end) {
      const auto [place, piece] = *at;
      *since = std::max(*since, piece.since);
      at = free_.erase(at);
      if (place < begin) free_[place] = {begin, piece.since};
      if (piece.end > end) free_[end] = {piece.end, piece.since};
    }
  }

  static constexpr size_t kNoPlace = ~size_t{0};
  static constexpr int kMostTried = 64;

  struct Free {
    size_t end = 0;
    int since = -1;  // the last step that used it
  };

  const LayoutInput& input_;
  const LayoutPolicy policy_;
  const int steps_;
  std::vector<BlockState> blocks_;
  std::vector<std::vector<int>> touched_, on_host_;   // by step
  std::map<size_t, int> resident_;                    // by place: block
  std::map<size_t, Free> free_;                       // by place
  std::map<std::pair<double, size_t>, int> victims_;  // of them, by density and place
  int fetches_since_ = -1;                            // the step that the last fetch waits for
  std::vector<Stay> stays_;
};

}  // namespace

std::vector<Stay> LayOut(const LayoutInput& input, const LayoutPolicy& policy) {
  return Layout(input, policy).Run();
}

}  // namespace gyre
