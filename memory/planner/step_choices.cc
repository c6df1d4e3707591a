#include "memory/planner/step_choices.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

namespace gyre {
namespace {

// Calls consider(n), which returns whether the first n of `count` candidates are the best so far.
// First come the multiples of count / shares, then numbers ever nearer to the best.  A number may
// come twice or be out of range.  Returns the best, or 0.
template <typename Consider>
int SearchCount(int count, int shares, const Consider& consider) {
  int best = 0;
  const auto attempt = [&](int n) {
    if (consider(n)) best = n;
  };
  for (int share = 1; share <= shares; ++share) attempt(count * share / shares);
  for (int step = count / shares / 2; step > 0; step /= 2) {
    const int around = best;
    attempt(around - step);
    attempt(around + step);
  }
  return best;
}

// By step: the first n candidates.
std::vector<bool> FirstOf(const AccessTrace& trace, const std::vector<int>& candidates, int n) {
  std::vector<bool> set(trace.steps.size());
  for (int i = 0; i < n; ++i) set[candidates[i]] = true;
  return set;
}

// --- Steps on the host ---------------------------------------------------------------------------

// Whether it touches a state that is on the device for good only because a pinned one is of its
// block.  A step on the host would look for its page.
bool TouchesBesidePinned(const AccessTrace& trace, const TraceBlocks& cut, const TraceStep& step) {
  return std::ranges::any_of(step.touches, [&](const TraceTouch& touch) {
    int root = touch.state;
    while (trace.states[root].view_of >= 0) root = trace.states[root].view_of;
    const bool pinned = trace.states[root].persistent && trace.states[root].pinned;
    return cut.blocks[cut.states[root].block].pinned && !pinned;
  });
}

// Steps that may run on the host and save copies by it.  Sorted by bytes saved per host byte, then
// by step.
std::vector<int> HostCandidates(const AccessTrace& trace, const TraceBlocks& cut,
                                const std::vector<std::vector<BlockTouch>>& touches,
                                const std::vector<bool>& resident) {
  std::vector<int> steps(cut.blocks.size());  // by block: that touch it
  for (const std::vector<BlockTouch>& of_step : touches) {
    for (const BlockTouch& touch : of_step) ++steps[touch.block];
  }
  std::vector<std::pair<double, int>> ranked;
  for (size_t s = 0; s < trace.steps.size(); ++s) {
    if (trace.steps[s].host_bytes == 0) continue;
    bool can = !TouchesBesidePinned(trace, cut, trace.steps[s]);
    double saved = 0;
    for (const auto& [b, reads, writes] : touches[s]) {
      const TraceBlock& block = cut.blocks[b];
      if (block.pinned || block.bytes == 0) continue;
      // Nor what travels in 16 bits.
      const bool whole = block.page_bytes == block.bytes;
      can &= block.arena == Arena::kDevice && !resident[b] && whole;
      const auto bytes = static_cast<double>(block.bytes);
      if (!block.persistent) {
        saved -= reads ? bytes : 0;  // which goes out for it
      } else if (steps[b] == 1) {
        saved += (reads ? bytes : 0) + (writes ? bytes : 0);
      } else {
        saved += writes ? bytes : 0;
      }
    }
    const auto moved = static_cast<double>(trace.steps[s].host_bytes);
    if (can && saved > 0) ranked.emplace_back(saved / moved, static_cast<int>(s));
  }
  std::ranges::stable_sort(ranked, std::greater(), &std::pair<double, int>::first);
  std::vector<int> candidates;
  for (const auto& [rank, step] : ranked) candidates.push_back(step);
  return candidates;
}

// --- Steps that run again ------------------------------------------------------------------------
//
// A value is the result of a step's write to a byte range.  Views and groups cut the ranges.  A
// step may run again if two conditions hold.  Each value that it reads is there again, or is made
// again before it.  Each value that it overwrites is dead, or is there again when all reruns end.

// A pause counts by its seconds; where no step takes any, by its steps.
constexpr double kLeastSeconds = 1e-9;
// Tries of the search: each takes up to the square of the steps' number, 8 ms for 1,000.
constexpr int64_t kWork = 20'000'000;
constexpr int kLeastTries = 8, kMostTries = 160;

// Which steps can run again, and when.
class Recomputation {
 public:
  // The trace outlives the result.
  Recomputation(const AccessTrace& trace, const TraceBlocks& cut,
                const std::vector<std::vector<BlockTouch>>& touches)
      : trace_(trace) {
    if (std::ranges::none_of(trace.steps, &TraceStep::repeatable)) return;
    CutRanges(cut);
    FindUses();
    FindPauses();
    FindCandidates(cut, touches);
  }

  // Steps that can run again by themselves, after their pause.  Those that save most bytes for the
  // time of all that must run come first.
  const std::vector<int>& candidates() const { return candidates_; }

  // The trace's steps in order.  Each chosen candidate runs again once, before the first step that
  // needs it after its pause, unless it cannot run there.  chosen: by step.
  std::vector<int> Order(const std::vector<bool>& chosen) const {
    // Steps that are to run for many others, again and again, are not worth it.
    const size_t longest = 2 * uses_.size();
    std::vector<int> order;
    RerunWalk walk(*this, chosen);
    for (int step = 0; step < static_cast<int>(uses_.size()); ++step) {
      for (const int again : before_[step]) {
        if (!chosen[again] || walk.made(again)) continue;
        const std::vector<int> steps = walk.Again(again, step);
        walk.Keep(again);
        if (order.size() + steps.size() > longest) {
          walk.Undo(steps);
          continue;
        }
        order.insert(order.end(), steps.begin(), steps.end());
      }
      order.push_back(step);
      walk.Pass(step);
    }
    return order;
  }

 private:
  // A byte range's value is the step that wrote it, or:
  static constexpr int kNothing = -1, kFromBefore = -2;
  struct Use {
    int range = 0;
    int value = kNothing;  // before the step
    bool reads = false;    // this value
    bool writes = false;
  };

  // The iteration as it goes on: what is where.
  class RerunWalk {
   public:
    RerunWalk(const Recomputation& of, const std::vector<bool>& chosen)
        : of_(of),
          chosen_(chosen),
          is_(of.persistent_.size()),
          next_(of.persistent_.size()),
          made_(of.uses_.size()) {
      for (size_t r = 0; r < is_.size(); ++r) is_[r] = of.persistent_[r] ? kFromBefore : kNothing;
      due_ = is_;
    }

    // A step that runs in its turn.
    void Pass(int step) {
      for (const Use& use : of_.uses_[step]) {
        ++next_[use.range];
        if (use.writes) is_[use.range] = due_[use.range] = step;
      }
    }

    // Those that make again what the step made: it, and before it what it needs.  Empty, and
    // nothing has happened, where that cannot be before step `before`.
    std::vector<int> Again(int step, int before) {
      std::vector<int> steps;
      overwritten_.clear();
      bool can = Make(step, before, steps);
      for (const auto& [range, value] : overwritten_) {
        can &= is_[range] == due_[range] || !Needed(range);
      }
      if (!can) {
        Undo(steps);
        steps.clear();
      }
      return steps;
    }
    // The last result of Again.
    void Undo(const std::vector<int>& steps) {
      for (; !overwritten_.empty(); overwritten_.pop_back()) {
        is_[overwritten_.back().first] = overwritten_.back().second;
      }
      for (const int step : steps) made_[step] = false;
    }

    bool made(int step) const { return made_[step]; }
    // What it made is there for good.
    void Keep(int step) { made_[step] = true; }

   private:
    bool Make(int step, int before, std::vector<int>& steps) {
      // Each is wanted once; more would be for values that overwrite each other.
      if (!of_.trace_.steps[step].repeatable || steps.size() > of_.uses_.size()) return false;
      for (const Use& use : of_.uses_[step]) {
        if (!use.reads || (is_[use.range] == use.value && !Dropped(use.value, before))) continue;
        if (use.value < 0 || !Make(use.value, before, steps)) return false;
      }
      for (const Use& use : of_.uses_[step]) {
        if (use.reads && is_[use.range] != use.value) return false;
      }
      for (const Use& use : of_.uses_[step]) {
        if (!use.writes) continue;
        overwritten_.emplace_back(use.range, is_[use.range]);
        is_[use.range] = step;
      }
      steps.push_back(step);
      made_[step] = true;
      return true;
    }

    // Whether what the step made is not to lie anywhere then.
    bool Dropped(int step, int before) const {
      return step >= 0 && !made_[step] && chosen_[step] && of_.pause_[step].first < before;
    }
    // Whether a step to come, or the next iteration, reads what is due there.
    bool Needed(int range) const {
      const auto& users = of_.users_[range];
      return next_[range] < users.size() ? users[next_[range]].reads : of_.persistent_[range];
    }

    const Recomputation& of_;
    const std::vector<bool>& chosen_;
    std::vector<int> is_, due_;  // by range: the value that is there; that would be in the trace
    std::vector<size_t> next_;   // by range: user
    std::vector<bool> made_;     // by step: again
    std::vector<std::pair<int, int>> overwritten_;  // by the last Again: range and value before
  };

  void CutRanges(const TraceBlocks& cut) {
    std::vector<std::vector<size_t>> ends(cut.blocks.size());
    for (size_t i = 0; i < cut.states.size(); ++i) {
      const auto& [block, offset] = cut.states[i];
      ends[block].push_back(offset);
      ends[block].push_back(offset + trace_.states[i].bytes);
    }
    std::vector<int> first(cut.blocks.size());
    for (size_t b = 0; b < ends.size(); ++b) {
      std::ranges::sort(ends[b]);
      ends[b].erase(std::ranges::unique(ends[b]).begin(), ends[b].end());
      first[b] = static_cast<int>(persistent_.size());
      persistent_.insert(persistent_.end(), ends[b].size() - 1, cut.blocks[b].persistent);
    }
    for (size_t i = 0; i < cut.states.size(); ++i) {
      const auto& [block, offset] = cut.states[i];
      const auto range = [&](size_t at) {
        return first[block] +
               static_cast<int>(std::ranges::lower_bound(ends[block], at) - ends[block].begin());
      };
      ranges_of_.emplace_back(range(offset), range(offset + trace_.states[i].bytes));
    }
  }

  void FindUses() {
    std::vector<int> is(persistent_.size());
    for (size_t r = 0; r < is.size(); ++r) is[r] = persistent_[r] ? kFromBefore : kNothing;
    std::vector<int> index(persistent_.size(), -1);  // of a range among the step's uses
    users_.resize(persistent_.size());
    for (int step = 0; step < static_cast<int>(trace_.steps.size()); ++step) {
      std::vector<Use>& uses = uses_.emplace_back();
      for (const TraceTouch& touch : trace_.steps[step].touches) {
        if (!touch.read && !touch.write) continue;  // it neither needs a value nor ends it
        for (int r = ranges_of_[touch.state].first; r < ranges_of_[touch.state].second; ++r) {
          if (index[r] < 0) {
            index[r] = static_cast<int>(uses.size());
            uses.push_back({.range = r, .value = is[r]});
          }
          // Where there is nothing it reads what it writes itself.
          uses[index[r]].reads |= touch.read && is[r] != kNothing;
          uses[index[r]].writes |= touch.write;
        }
      }
      for (const Use& use : uses) {
        index[use.range] = -1;
        users_[use.range].push_back({step, use.reads, use.writes});
        if (use.writes) is[use.range] = step;
      }
    }
  }

  void FindPauses() {
    std::vector<double> begins = {0};
    for (const TraceStep& step : trace_.steps) {
      begins.push_back(begins.back() + step.seconds + kLeastSeconds);
    }
    for (int step = 0; step < static_cast<int>(uses_.size()); ++step) {
      pause_.emplace_back(-1, -1);
      if (!trace_.steps[step].repeatable) continue;
      std::vector<int> readers;
      for (const Use& use : uses_[step]) {
        if (!use.writes) continue;
        const auto& users = users_[use.range];
        auto at = std::ranges::upper_bound(users, step, {}, &User::step);
        for (; at != users.end(); ++at) {
          if (at->reads) readers.push_back(at->step);
          if (at->writes) break;
        }
      }
      std::ranges::sort(readers);
      int last = step;
      double longest = 0;
      for (const int reader : readers) {
        const double pause = begins[reader] - begins[last + 1];
        if (reader > last + 1 && pause > longest) {
          longest = pause;
          pause_[step] = {last, reader};
        }
        last = reader;
      }
    }
  }

  void FindCandidates(const TraceBlocks& cut, const std::vector<std::vector<BlockTouch>>& touches) {
    before_.resize(uses_.size());
    for (int step = 0; step < static_cast<int>(uses_.size()); ++step) {
      if (pause_[step].second >= 0) before_[pause_[step].second].push_back(step);
    }
    // By block: of the trace's steps to come the first, whether it reads.
    std::vector<std::vector<bool>> reads(cut.blocks.size());
    for (const auto& of_step : touches) {
      for (const BlockTouch& touch : of_step) reads[touch.block].push_back(touch.reads);
    }
    std::vector<size_t> next(cut.blocks.size());
    std::vector<int> seen(cut.blocks.size(), -1);  // by block: the last candidate that touches it
    const std::vector<bool> none(uses_.size());
    std::vector<std::pair<double, int>> ranked;  // less than nothing, and step
    RerunWalk walk(*this, none);
    for (int step = 0; step < static_cast<int>(uses_.size()); ++step) {
      for (const int again : before_[step]) {
        const std::vector<int> steps = walk.Again(again, step);
        walk.Undo(steps);
        double seconds = 0;
        size_t bytes = 0;  // of blocks that need not be stored or copied
        for (const int s : steps) {
          seconds += trace_.steps[s].seconds;
          for (const BlockTouch& touch : touches[s]) {
            const bool first = std::exchange(seen[touch.block], again) != again;
            const bool needed = next[touch.block] < reads[touch.block].size() &&
                                reads[touch.block][next[touch.block]];
            if (!first || touch.reads || !needed || cut.blocks[touch.block].persistent) continue;
            bytes += cut.blocks[touch.block].bytes;
          }
        }
        if (bytes == 0) continue;
        ranked.emplace_back(-static_cast<double>(bytes) / (kLeastSeconds + seconds), again);
      }
      walk.Pass(step);
      for (const BlockTouch& touch : touches[step]) ++next[touch.block];
    }
    std::ranges::sort(ranked);
    for (const auto& [rank, step] : ranked) candidates_.push_back(step);
  }

  const AccessTrace& trace_;
  std::vector<std::pair<int, int>> ranges_of_;  // by state: the first range and one beyond the last
  std::vector<bool> persistent_;                // by range
  std::vector<std::vector<Use>> uses_;          // by step
  struct User {
    int step = 0;
    bool reads = false, writes = false;
  };
  std::vector<std::vector<User>> users_;  // by range
  // By step: the readers around its longest pause.  The first may be the step itself.
  std::vector<std::pair<int, int>> pause_;
  std::vector<std::vector<int>> before_;  // by step: the steps whose pause it ends
  std::vector<int> candidates_;
};

}  // namespace

void ChooseHostSteps(const AccessTrace& trace, const TraceBlocks& cut,
                     const std::vector<std::vector<BlockTouch>>& touches,
                     const std::vector<bool>& resident, double without_any,
                     const std::function<double(std::vector<bool>)>& seconds) {
  const std::vector<int> candidates = HostCandidates(trace, cut, touches, resident);
  if (candidates.empty()) return;
  const int count = static_cast<int>(candidates.size());
  double best = without_any;
  std::set<int> tried;
  const auto consider = [&](int n) {
    if (n <= 0 || n > count || !tried.insert(n).second) return false;
    const double took = seconds(FirstOf(trace, candidates, n));
    if (took >= best) return false;
    best = took;
    return true;
  };
  if (trace.steps.size() > kManySteps) {
    consider(count);
  } else {
    SearchCount(count, /*shares=*/4, consider);
  }
}

void ChooseOrder(const AccessTrace& trace, const TraceBlocks& cut,
                 const std::vector<std::vector<BlockTouch>>& touches, double without_any,
                 const std::function<double(std::vector<int>)>& seconds) {
  const Recomputation recomputation(trace, cut, touches);
  const std::vector<int>& candidates = recomputation.candidates();
  if (candidates.empty()) return;
  const int count = static_cast<int>(candidates.size());
  const auto steps = static_cast<int64_t>(trace.steps.size());
  int tries = std::clamp(static_cast<int>(kWork / steps / steps), kLeastTries, kMostTries);
  double best = without_any;
  std::vector<bool> chosen(trace.steps.size());
  const auto consider = [&](std::vector<bool> set) {
    if (--tries < 0) return false;
    const double took = seconds(recomputation.Order(set));
    if (took >= best) return false;
    best = took;
    chosen = std::move(set);
    return true;
  };

  const int most = SearchCount(count, /*shares=*/8, [&](int n) {
    if (n < 0 || n > count) return false;
    return consider(FirstOf(trace, candidates, n));
  });

  // One more or fewer, first of those about which it is least clear.
  std::vector<int> doubtful(candidates.size());
  std::iota(doubtful.begin(), doubtful.end(), 0);
  std::ranges::stable_sort(doubtful, {}, [&](int i) { return std::abs(2 * (i - most) + 1); });
  for (bool better = true; better && tries > 0;) {
    better = false;
    for (const int i : doubtful) {
      std::vector<bool> set = chosen;
      set[candidates[i]] = !set[candidates[i]];
      better |= consider(std::move(set));
    }
  }
}

}  // namespace gyre
