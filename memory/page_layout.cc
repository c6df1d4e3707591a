#include "memory/page_layout.h"

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
        touched_(static_cast<size_t>(steps_)) {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      blocks_[b].page_valid = input.persistent[b];
      for (const Access& access : input.accesses[b]) {
        touched_[access.step].push_back(static_cast<int>(b));
      }
    }
    free_since_[input.begin] = -1;
  }

  std::vector<Stay> Run() {
    for (int step = 0; step < steps_; ++step) {
      Enter(step);
      for (const int b : touched_[step]) Touch(b, step);
    }
    std::ranges::stable_sort(
        stays_, {}, [](const Stay& stay) { return std::pair(stay.first_step, stay.block); });
    return std::move(stays_);
  }

 private:
  struct Block {
    size_t next = 0;          // access, that is not over
    int stay = -1;            // that it is in
    bool page_valid = false;  // the page has its value
  };

  const Access& NextOf(int b) const { return input_.accesses[b][blocks_[b].next]; }
  bool HasNext(int b) const { return blocks_[b].next < input_.accesses[b].size(); }
  // Whether anybody reads, before it is written anew, what the block has.
  bool Live(int b) const { return HasNext(b) ? NextOf(b).reads : bool{input_.persistent[b]}; }
  bool TouchedAt(int b, int step) const { return HasNext(b) && NextOf(b).step == step; }

  // Gives all that the step touches a place.
  void Enter(int step) {
    std::vector<int> absent;
    for (const int b : touched_[step]) {
      if (blocks_[b].stay < 0) absent.push_back(b);
    }
    // The longest first: they are the hardest to place.
    std::ranges::stable_sort(absent, std::greater(), [&](int b) { return input_.bytes[b]; });
    for (const int b : absent) {
      const size_t place = FindPlace(b, step);
      if (place == kNoPlace) return LayOutAnew(step);
      ClearPlace(place, input_.bytes[b]);
      Begin(b, step, place);
    }
  }

  void Touch(int b, int step) {
    const Access& access = NextOf(b);
    Block& block = blocks_[b];
    if (access.writes) block.page_valid = false;
    stays_[block.stay].last_step = step;
    ++block.next;
    // What nobody reads, or who reads it finds at home, has no reason to stay.
    if (!Live(b) || !HasNext(b)) End(b);
  }

  void Begin(int b, int step, size_t place) {
    blocks_[b].stay = static_cast<int>(stays_.size());
    stays_.push_back({.block = b,
                      .first_step = step,
                      .last_step = step,
                      .offset = place,
                      .fetched = NextOf(b).reads && HasValue(b)});
    resident_[place] = b;
  }
  // Scratch may read what it writes itself.
  bool HasValue(int b) const { return input_.persistent[b] || blocks_[b].next > 0; }

  void End(int b) {
    Block& block = blocks_[b];
    Stay& stay = stays_[block.stay];
    stay.written_back = Live(b) && !block.page_valid;
    if (stay.written_back) block.page_valid = true;
    resident_.erase(stay.offset);
    SetFree(stay.offset, input_.bytes[b], stay.last_step);
    block.stay = -1;
  }

  void ClearPlace(size_t place, size_t bytes) {
    auto at = resident_.lower_bound(place);
    if (at != resident_.begin() && EndOf(*std::prev(at)) > place) --at;
    while (at != resident_.end() && at->first < place + bytes) {
      const int b = at->second;
      ++at;
      End(b);
    }
  }

  // All that is there goes, and what the step touches lies side by side.
  void LayOutAnew(int step) {
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) {
      if (blocks_[b].stay < 0) continue;
      // A stay that this step has begun has not been.
      if (stays_[blocks_[b].stay].first_step == step && TouchedAt(b, step)) {
        Undo(b);
      } else {
        End(b);
      }
    }
    size_t place = input_.begin;
    for (const int b : touched_[step]) {
      Begin(b, step, place);
      place += input_.bytes[b];
    }
    GYRE_CHECK(place <= input_.end);
  }

  void Undo(int b) {
    const int stay = blocks_[b].stay;
    resident_.erase(stays_[stay].offset);
    blocks_[b].stay = -1;
    stays_.erase(stays_.begin() + stay);
    for (Block& block : blocks_) block.stay -= block.stay > stay ? 1 : 0;
  }

  size_t EndOf(const std::pair<const size_t, int>& at) const {
    return at.first + input_.bytes[at.second];
  }

  // Of making room by a block's going; infinite where the step touches it.
  double Cost(int b, int step) const {
    if (TouchedAt(b, step)) return std::numeric_limits<double>::infinity();
    const Stay& stay = stays_[blocks_[b].stay];
    const auto bytes = static_cast<double>(input_.bytes[b]);
    double seconds = bytes / input_.costs.to_device_bytes_per_s;
    if (!blocks_[b].page_valid) seconds += bytes / input_.costs.to_host_bytes_per_s;
    const double gap = input_.begins[NextOf(b).step] - input_.begins[stay.last_step + 1];
    const double until = input_.begins[NextOf(b).step] - input_.begins[step];
    return seconds / (1e-9 + std::max(policy_.by_time ? gap : until, 0.0));
  }

  // Better is less, in order.
  struct Rank {
    double cost = std::numeric_limits<double>::infinity();
    int free_since = kNever;
    size_t left = 0;
  };
  bool Better(const Rank& a, const Rank& b) const {
    if (a.cost != b.cost) return a.cost < b.cost;
    if (policy_.longest_free && a.free_since != b.free_since) return a.free_since < b.free_since;
    return a.left < b.left;
  }

  // Where a block of this step is to lie; kNoPlace if others of the step are in the way.
  size_t FindPlace(int b, int step) const {
    const size_t free = FindFree(input_.bytes[b]);
    return free != kNoPlace ? free : FindOccupied(input_.bytes[b], step);
  }

  // Where nothing lies.
  size_t FindFree(size_t bytes) const {
    size_t found = kNoPlace;
    Rank best;
    auto since = free_since_.begin();  // the first entry beyond the gap's begin
    const auto look = [&](size_t low, size_t high) {
      if (high - low < bytes) return;
      while (since != free_since_.end() && since->first <= low) ++since;
      const auto consider = [&](size_t place) {
        const Rank rank = {.cost = 0,
                           .free_since = policy_.longest_free ? FreeSince(place, bytes) : 0,
                           .left = high - low - bytes};
        if (found != kNoPlace && !Better(rank, best)) return;
        found = place;
        best = rank;
      };
      consider(low);
      consider(high - bytes);
      for (auto at = since; policy_.longest_free && at != free_since_.end(); ++at) {
        if (at->first + bytes > high) break;
        consider(at->first);
      }
    };
    size_t low = input_.begin;
    for (const auto& at : resident_) {
      look(low, at.first);
      low = EndOf(at);
    }
    look(low, input_.end);
    return found;
  }

  // Which blocks are to go, side by side: from one's begin on, or up to another's end.
  size_t FindOccupied(size_t bytes, int step) const {
    struct Occupant {
      size_t begin, end;
      double cost;
      int last_step;
    };
    std::vector<Occupant> all;
    for (const auto& at : resident_) {
      all.push_back(
          {at.first, EndOf(at), Cost(at.second, step), stays_[blocks_[at.second].stay].last_step});
    }
    size_t found = kNoPlace;
    Rank best;
    const auto consider = [&](size_t place) {
      if (place < input_.begin || place + bytes > input_.end) return;
      Rank rank = {.cost = 0, .free_since = -1, .left = 0};
      auto at = std::ranges::upper_bound(all, place, {}, &Occupant::end);
      for (; at != all.end() && at->begin < place + bytes; ++at) {
        rank.cost += at->cost;
        rank.free_since = std::max(rank.free_since, at->last_step);
        if (found != kNoPlace && rank.cost > best.cost) return;
      }
      if (rank.cost == std::numeric_limits<double>::infinity()) return;
      if (found != kNoPlace && !Better(rank, best)) return;
      found = place;
      best = rank;
    };
    consider(input_.begin);
    if (input_.end >= bytes) consider(input_.end - bytes);
    for (const Occupant& occupant : all) {
      consider(occupant.begin);
      consider(occupant.end);
      if (occupant.begin >= bytes) consider(occupant.begin - bytes);
      if (occupant.end >= bytes) consider(occupant.end - bytes);
    }
    return found;
  }

  // free_since_[place]: the last step that used what lies from there to the next entry.
  void SetFree(size_t place, size_t bytes, int step) {
    const auto after = std::prev(free_since_.upper_bound(place + bytes));
    const int beyond = after->second;
    const bool ends_there = place + bytes >= input_.end;
    free_since_.erase(free_since_.lower_bound(place), free_since_.upper_bound(place + bytes));
    free_since_[place] = step;
    if (!ends_there) free_since_[place + bytes] = beyond;
  }
  int FreeSince(size_t place, size_t bytes) const {
    int step = -1;
    for (auto at = std::prev(free_since_.upper_bound(place));
         at != free_since_.end() && at->first < place + bytes; ++at) {
      step = std::max(step, at->second);
    }
    return step;
  }

  static constexpr size_t kNoPlace = ~size_t{0};

  const LayoutInput& input_;
  const LayoutPolicy policy_;
  const int steps_;
  std::vector<Block> blocks_;
  std::vector<std::vector<int>> touched_;  // by step
  std::map<size_t, int> resident_;         // by place: block
  std::map<size_t, int> free_since_;
  std::vector<Stay> stays_;
};

}  // namespace

std::vector<Stay> LayOut(const LayoutInput& input, const LayoutPolicy& policy) {
  return Layout(input, policy).Run();
}

}  // namespace gyre
