#include "memory/planner/page_layout.h"

#include <algorithm>
#include <limits>
#include <map>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// Into the order of a plan's.
void SortStays(std::vector<Stay>& stays) {
  std::ranges::stable_sort(stays, {},
                           [](const Stay& stay) { return std::pair(stay.first_step, stay.block); });
}

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
    if (input.begin < input.end) free_.push_back({input.begin, input.end, -1});
  }

  std::vector<Stay> Run() {
    for (int step = 0; step < steps_; ++step) {
      Enter(step);
      for (const int b : touched_[step]) Touch(b, step);
      for (const int b : on_host_[step]) TouchPage(b);
    }
    SortStays(stays_);
    return std::move(stays_);
  }

 private:
  struct BlockState {
    size_t next = 0;          // access, that is not over
    int stay = -1;            // that it is in
    bool page_valid = false;  // the page has its value
    // Of evicting it until it is touched again, and of that a byte's share.
    double cost = 0, density = 0;
  };

  const BlockAccess& NextOf(int b) const { return input_.accesses[b][blocks_[b].next]; }
  bool HasNext(int b) const { return blocks_[b].next < input_.accesses[b].size(); }
  // Whether anybody reads the block's value before it is written anew.
  bool Live(int b) const { return HasNext(b) ? NextOf(b).reads : bool{input_.persistent[b]}; }
  bool TouchedAt(int b, int step) const { return HasNext(b) && NextOf(b).step == step; }
  size_t OffsetOf(int b) const { return stays_[blocks_[b].stay].offset; }
  size_t EndOf(int b) const { return OffsetOf(b) + input_.bytes[b]; }

  // Gives each block that the step touches an offset.
  void Enter(int step) {
    const size_t before = stays_.size();
    std::vector<int> absent;
    for (const int b : touched_[step]) {
      if (blocks_[b].stay < 0) absent.push_back(b);
    }
    // The longest first: they are the hardest to place.
    std::ranges::stable_sort(absent, std::greater(), [&](int b) { return input_.bytes[b]; });
    for (const int b : absent) {
      const size_t offset = FindOffset(b, step);
      if (offset == kNoOffset) return LayOutAnew(step, before);
      Begin(b, step, offset);
    }
  }

  void Touch(int b, int step) {
    const BlockAccess& access = NextOf(b);
    BlockState& block = blocks_[b];
    if (access.writes) block.page_valid = false;
    stays_[block.stay].last_step = step;
    victims_.erase({block.density, OffsetOf(b)});
    ++block.next;
    // What nobody reads, or who reads it finds at home or in the page, has no reason to stay.
    if (!Live(b) || !HasNext(b) || NextOf(b).on_host) return End(b);
    SetCost(b);
    victims_[{block.density, OffsetOf(b)}] = b;
  }

  void TouchPage(int b) {
    BlockState& block = blocks_[b];
    const BlockAccess& access = NextOf(b);
    GYRE_CHECK(block.stay < 0 && (block.page_valid || !access.reads || !HasValue(b)));
    block.page_valid = true;  // what is there, written or not, is there alone
    ++block.next;
  }

  // Evicts what is at `offset`.
  void Begin(int b, int step, size_t offset) {
    auto at = resident_.lower_bound(offset);
    if (at != resident_.begin() && EndOf(std::prev(at)->second) > offset) --at;
    while (at != resident_.end() && at->first < offset + input_.bytes[b]) End((at++)->second);
    int since = -1;
    TakeFree(offset, offset + input_.bytes[b], &since);
    blocks_[b].stay = static_cast<int>(stays_.size());
    stays_.push_back({.block = b,
                      .first_step = step,
                      .last_step = step,
                      .offset = offset,
                      .fetched = NextOf(b).reads && HasValue(b)});
    // Fetches are in the order of steps: the next cannot begin before this one.
    if (stays_.back().fetched && since > fetches_since_) {
      fetches_since_ = since;
      JoinFree(free_.begin(), free_.end());
    }
    resident_[offset] = b;
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
    const size_t offset = OffsetOf(b);
    victims_.erase({block.density, offset});
    resident_.erase(offset);
    const Free range = {offset, offset + input_.bytes[b], free_since};
    const auto at = free_.insert(std::ranges::lower_bound(free_, offset, {}, &Free::begin), range);
    JoinFree(at == free_.begin() ? at : at - 1, std::min(at + 2, free_.end()));
    block.stay = -1;
  }

  // Evicts all blocks and lays out the step's side by side.  Takes back the stays from `begun` on,
  // which this step has begun.
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
    size_t offset = input_.begin;
    for (const int b : touched_[step]) {
      Begin(b, step, offset);
      offset += input_.bytes[b];
    }
    GYRE_CHECK(offset <= input_.end);
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

  // For a block of this step.  kNoOffset if others of the step are in the way.
  size_t FindOffset(int b, int step) {
    const size_t free = FindFree(input_.bytes[b]);
    return free != kNoOffset ? free : FindOccupied(input_.bytes[b], step);
  }

  struct Free {
    size_t begin = 0, end = 0;
    int since = -1;  // the last step that used it
  };
  using FreeAt = std::vector<Free>::iterator;

  // Joins adjacent ranges of free_ that no fetch would tell apart.
  void JoinFree(FreeAt first, FreeAt end) {
    if (first == end) return;
    FreeAt last = first;
    for (FreeAt next = first + 1; next != end; ++next) {
      const bool alike = std::max(last->since, next->since) <= fetches_since_;
      if (next->begin == last->end && alike) {
        last->end = next->end;
      } else if (++last != next) {
        *last = *next;
      }
    }
    free_.erase(last + 1, end);
  }

  // The range that is free for longest, as far as fetches gain by it.  Among equals the shortest
  // sufficient gap wins, so that long ones stay whole.
  size_t FindFree(size_t bytes) const {
    size_t found = kNoOffset;
    std::pair best(kNever, ~size_t{0});
    for (auto gap = free_.begin(); gap != free_.end();) {
      auto beyond = gap + 1;
      while (beyond != free_.end() && beyond->begin == (beyond - 1)->end) ++beyond;
      const size_t end = (beyond - 1)->end, length = end - gap->begin;
      const auto is_worse = [&](int since) {
        return std::pair(std::max(since, fetches_since_), length) >= best;
      };
      while (gap != beyond && gap->begin + bytes <= end && !is_worse(-1)) {
        int since = fetches_since_;
        auto at = gap;
        for (; at != beyond && at->begin < gap->begin + bytes && !is_worse(at->since); ++at) {
          since = std::max(since, at->since);
        }
        if (at == beyond || at->begin >= gap->begin + bytes) {
          found = gap->begin;
          best = {since, length};
          ++gap;
        } else {
          gap = at + 1;  // what begins before that takes it, too
        }
      }
      gap = beyond;
    }
    return found;
  }

  // The offset whose blocks cost least to evict.  Tries those beside the kMostTried victims that
  // cost least a byte.
  size_t FindOccupied(size_t bytes, int step) const {
    size_t found = kNoOffset;
    std::pair<double, int> best;
    const auto consider = [&](size_t offset, auto at) {
      std::pair<double, int> rank(0, -1);
      for (; at != resident_.end() && at->first < offset + bytes; ++at) {
        const int b = at->second;
        if (TouchedAt(b, step)) return;
        rank.first += blocks_[b].cost;
        rank.second = std::max(rank.second, stays_[blocks_[b].stay].last_step);
        if (found != kNoOffset && rank.first > best.first) return;
      }
      if (found != kNoOffset && rank >= best) return;
      found = offset;
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
      if (++tried >= kMostTried && found != kNoOffset) break;
    }
    return found;
  }

  // Takes the range out of `free_`.  *since becomes the step from which on all of it was free.
  void TakeFree(size_t begin, size_t end, int* since) {
    const auto first = std::ranges::upper_bound(free_, begin, {}, &Free::end);
    auto last = first;
    std::vector<Free> rest;
    for (; last != free_.end() && last->begin < end; ++last) {
      *since = std::max(*since, last->since);
      if (last->begin < begin) rest.push_back({last->begin, begin, last->since});
      if (last->end > end) rest.push_back({end, last->end, last->since});
    }
    free_.insert(free_.erase(first, last), rest.begin(), rest.end());
  }

  static constexpr int kMostTried = 64;

  const LayoutInput& input_;
  const LayoutPolicy policy_;
  const int steps_;
  std::vector<BlockState> blocks_;
  std::vector<std::vector<int>> touched_, on_host_;   // by step
  std::map<size_t, int> resident_;                    // by offset: block
  std::vector<Free> free_;                            // by offset
  std::map<std::pair<double, size_t>, int> victims_;  // of them, by density and offset
  int fetches_since_ = -1;                            // the step that the last fetch waits for
  std::vector<Stay> stays_;
};

}  // namespace

std::vector<Stay> LayOut(const LayoutInput& input, const LayoutPolicy& policy) {
  return Layout(input, policy).Run();
}

void FindCopies(const LayoutInput& input, bool keep_dead, std::vector<Stay>& stays) {
  SortStays(stays);
  std::vector<bool> page_valid = input.persistent;
  for (Stay& stay : stays) {
    const int b = stay.block;
    const std::vector<BlockAccess>& all = input.accesses[b];
    const auto first = std::ranges::lower_bound(all, stay.first_step, {}, &BlockAccess::step);
    const auto beyond = std::ranges::upper_bound(all, stay.last_step, {}, &BlockAccess::step);
    const bool written =
        std::any_of(first, beyond, [](const BlockAccess& access) { return access.writes; });
    const bool live = beyond != all.end() ? beyond->reads : bool{input.persistent[b]};
    // What is written on the host is in the page.
    if (first != all.begin() && std::prev(first)->on_host) page_valid[b] = true;
    if (written) page_valid[b] = false;
    // Scratch may read what it writes itself.
    stay.fetched = first->reads && (input.persistent[b] || first != all.begin());
    stay.written_back = live ? !page_valid[b] : keep_dead && written;
    if (stay.written_back) page_valid[b] = true;
  }
}

}  // namespace gyre
