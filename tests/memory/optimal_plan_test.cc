// How far plans of paging are from the fastest there could be, on small nets.
//
// The fastest plan is found by branch and bound.  It tries which blocks stay on the device between
// two uses, which persistent ones stay for good, and in what order copies and steps claim memory.
// Memory is counted by bytes: where there is room anywhere a block may lie in pieces.  So no plan
// is expected to be faster, and where nothing packs so well, none is as fast.  Copies run in the
// planner's order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "engine/runtime/check.h"
#include "memory/planner/paging_plan.h"
#include "memory/resident/memory_plan.h"
#include "tests/memory/random_trace.h"

namespace gyre {
namespace {

constexpr double kRounding = 1e-9;  // of a sum of times, relative

struct Use {
  int step = 0;
  bool reads = false, writes = false;
};

// How one block spends the iteration: a variant of those that are to try.
struct Part {
  int first_step = 0, last_step = 0;
  bool fetched = false, written_back = false;
};
struct Variant {
  bool resident = false;
  std::vector<Part> parts = {};
};

// A stay of the set of variants that is looked at.
struct Piece {
  int block = 0;
  size_t bytes = 0;
  Part part;
  double in = 0, out = 0;  // seconds of its copies
  int page_of = -1;        // the piece whose write-back its fetch reads, or -1
  bool before = false;     // that one is of the iteration before
};

struct OptimalPlan {
  double seconds = 0;   // of an iteration, as PredictTimes has it
  bool proven = false;  // the search was not cut short
};

class Solver {
 public:
  Solver(const AccessTrace& trace, const PagingCosts& costs, size_t capacity_bytes, double seconds,
         int64_t most_nodes)
      : trace_(trace),
        costs_(costs),
        capacity_(capacity_bytes),
        best_(seconds),
        nodes_left_(most_nodes) {
    for (const TraceStep& step : trace.steps) working_ += step.seconds;
  }

  OptimalPlan Run() {
    for (size_t b = 0; b < trace_.states.size(); ++b) variants_.push_back(VariantsOf(b));
    chosen_.resize(variants_.size());
    here_.assign(trace_.steps.size(), 0);
    Choose(0, 0);
    std::ranges::stable_sort(sets_, {}, &Set::fetching);
    for (const Set& set : sets_) {
      if (std::max(working_, set.fetching) >= Goal()) break;
      SearchOrders(set);
    }
    return {.seconds = best_, .proven = nodes_left_ > 0};
  }

 private:
  struct Set {
    double fetching = 0;               // seconds of all fetches
    std::vector<uint8_t> chosen = {};  // by block: variant
  };

  double Goal() const { return best_ * (1 - kRounding); }

  // Between two uses it stays where these are neighbours, and leaves where its value is dead.
  std::vector<Variant> VariantsOf(size_t b) const {
    const TraceState& state = trace_.states[b];
    std::vector<Use> uses;
    for (int step = 0; step < static_cast<int>(trace_.steps.size()); ++step) {
      Use use{.step = step};
      bool touched = false;
      for (const TraceTouch& touch : trace_.steps[step].touches) {
        if (touch.state != static_cast<int>(b)) continue;
        touched = true;
        use.reads |= touch.read;
        use.writes |= touch.write;
      }
      if (touched) uses.push_back(use);
    }
    if (uses.empty()) return {{}};
    std::vector<size_t> free;  // gaps where both may be
    for (size_t i = 0; i + 1 < uses.size(); ++i) {
      if (uses[i + 1].step > uses[i].step + 1 && uses[i + 1].reads) free.push_back(i);
    }
    std::vector<Variant> variants;
    if (state.persistent) variants.push_back({.resident = true});
    for (uint32_t leaves = 0; leaves < (1U << free.size()); ++leaves) {
      Variant& variant = variants.emplace_back();
      bool clean = state.persistent, here = false;
      for (size_t i = 0; i < uses.size(); ++i) {
        if (!here) {
          const bool value = state.persistent || i > 0;
          variant.parts.push_back({.first_step = uses[i].step, .fetched = uses[i].reads && value});
        }
        Part& part = variant.parts.back();
        part.last_step = uses[i].step;
        if (uses[i].writes) clean = false;
        const bool last = i + 1 == uses.size();
        const bool live = last ? state.persistent : uses[i + 1].reads;
        const auto gap = std::ranges::find(free, i);
        here = !last && live && (gap == free.end() || !(leaves >> (gap - free.begin()) & 1));
        part.written_back = !here && live && !clean;
        if (part.written_back) clean = true;
      }
    }
    return variants;
  }

  // All sets of variants that fit at each step.
  void Choose(size_t b, double fetching) {
    if (b == variants_.size()) {
      sets_.push_back({fetching, chosen_});
      return;
    }
    const size_t bytes = trace_.states[b].bytes;
    for (size_t v = 0; v < variants_[b].size(); ++v) {
      const Variant& variant = variants_[b][v];
      const std::vector<size_t> before = here_;
      double all = fetching;
      for (size_t step = 0; variant.resident && step < here_.size(); ++step) here_[step] += bytes;
      for (const Part& part : variant.parts) {
        for (int step = part.first_step; step <= part.last_step; ++step) here_[step] += bytes;
        if (part.fetched) all += static_cast<double>(bytes) / costs_.to_device_bytes_per_s;
      }
      chosen_[b] = static_cast<uint8_t>(v);
      const bool fits = std::ranges::all_of(here_, [&](size_t n) { return n <= capacity_; });
      if (fits && std::max(working_, all) < Goal()) Choose(b + 1, all);
      here_ = before;
    }
  }

  // What has happened, in one or two iterations.
  struct State {
    double began = 0, computed = 0, in = 0, out = 0;
    size_t claimed = 0;                                 // ever
    std::vector<std::pair<double, size_t>> freed = {};  // when and how much, by time
    std::vector<double> written = {};                   // by piece, in this iteration or before
    std::vector<double> fetched = {};                   // by fetch
  };

  void SearchOrders(const Set& set) {
    pieces_.clear();
    fetches_.clear();
    room_ = capacity_;
    for (size_t b = 0; b < variants_.size(); ++b) {
      const Variant& variant = variants_[b][set.chosen[b]];
      const size_t bytes = trace_.states[b].bytes;
      if (variant.resident) room_ -= bytes;
      for (const Part& part : variant.parts) {
        pieces_.push_back({.block = static_cast<int>(b),
                           .bytes = bytes,
                           .part = part,
                           .in = static_cast<double>(bytes) / costs_.to_device_bytes_per_s,
                           .out = static_cast<double>(bytes) / costs_.to_host_bytes_per_s});
      }
    }
    std::ranges::sort(pieces_, {}, [](const Piece& piece) {
      return std::pair(piece.part.first_step, piece.block);
    });
    of_step_.assign(trace_.steps.size(), {});
    for (size_t p = 0; p < pieces_.size(); ++p) {
      Piece& piece = pieces_[p];
      OfStep& first = of_step_[piece.part.first_step];
      (piece.part.fetched ? first.fetches : first.created) += piece.part.fetched ? 1 : piece.bytes;
      if (piece.part.fetched) fetches_.push_back(static_cast<int>(p));
      OfStep& last = of_step_[piece.part.last_step];
      if (piece.part.written_back) {
        last.written.push_back(static_cast<int>(p));
      } else {
        last.freed += piece.bytes;
      }
      for (size_t q = 0; q < pieces_.size(); ++q) {
        if (pieces_[q].block != piece.block || !pieces_[q].part.written_back) continue;
        // The last before it, or else the last of the iteration before.
        const bool before = q >= p;
        if (piece.page_of < 0 || !before || piece.before) {
          piece.page_of = static_cast<int>(q);
          piece.before = before;
        }
      }
    }
    State state;
    state.written.assign(pieces_.size(), 0);
    state.fetched.assign(fetches_.size(), 0);
    order_.clear();
    Search(0, 0, state);
  }

  // From when on there is room for so much.  Negative: not before another step.
  double RoomFrom(const State& state, size_t bytes) const {
    size_t needed = state.claimed + bytes;
    if (needed <= room_) return 0;
    for (const auto& [when, freed] : state.freed) {
      needed -= freed;
      if (needed <= room_) return when;
    }
    return -1;
  }

  void Free(double when, size_t bytes, State& state) const {
    const auto at = std::ranges::upper_bound(
        state.freed, when, {}, [](const std::pair<double, size_t>& freed) { return freed.first; });
    state.freed.insert(at, {when, bytes});
  }

  double PageFrom(const Piece& piece, const State& state) const {
    return piece.page_of < 0 ? 0 : state.written[piece.page_of];
  }

  // Whether there is room.
  bool Fetch(size_t fetch, State& state) const {
    const Piece& piece = pieces_[fetches_[fetch]];
    const double room = RoomFrom(state, piece.bytes);
    if (room < 0) return false;
    state.claimed += piece.bytes;
    state.in = std::max({state.in, state.began, room, PageFrom(piece, state)}) + piece.in;
    state.fetched[fetch] = state.in;
    return true;
  }

  // fetches: that are over then.
  bool Compute(size_t step, size_t fetches, State& state) const {
    const OfStep& of = of_step_[step];
    const double room = RoomFrom(state, of.created);
    if (of.created > 0 && room < 0) return false;
    state.computed = std::max(state.computed, of.created > 0 ? room : 0);
    if (of.fetches > 0) state.computed = std::max(state.computed, state.fetched[fetches - 1]);
    state.computed += trace_.steps[step].seconds;
    state.claimed += of.created;
    if (of.freed > 0) Free(state.computed, of.freed, state);
    for (const int p : of.written) {
      state.out = std::max(state.out, state.computed) + pieces_[p].out;
      state.written[p] = state.out;
      Free(state.out, pieces_[p].bytes, state);
    }
    return true;
  }

  // When the rest is over if memory does not matter.
  double Rest(size_t step, size_t fetch, const State& state) {
    double computed = state.computed, in = state.in, out = state.out;
    written_ = state.written;
    for (; step < of_step_.size(); ++step) {
      for (; fetch < fetches_.size() &&
             pieces_[fetches_[fetch]].part.first_step == static_cast<int>(step);
           ++fetch) {
        const Piece& piece = pieces_[fetches_[fetch]];
        in =
            std::max({in, state.began, piece.page_of < 0 ? 0 : written_[piece.page_of]}) + piece.in;
        computed = std::max(computed, in);
      }
      computed += trace_.steps[step].seconds;
      for (const int p : of_step_[step].written) {
        written_[p] = out = std::max(out, computed) + pieces_[p].out;
      }
    }
    return computed - state.began;
  }

  // Claims next a fetch or a step.
  void Search(size_t step, size_t fetch, const State& state) {
    if (nodes_left_ <= 0 || Rest(step, fetch, state) >= Goal()) return;
    --nodes_left_;
    if (step == of_step_.size()) return Repeat(state);
    const bool any = fetch < fetches_.size();
    const Piece* const piece = any ? &pieces_[fetches_[fetch]] : nullptr;
    const bool left = !any || piece->page_of < 0 || piece->before ||
                      pieces_[piece->page_of].part.last_step < static_cast<int>(step);
    if (any && left) {
      State next = state;
      if (Fetch(fetch, next)) {
        order_.push_back(true);
        Search(step, fetch + 1, next);
        order_.pop_back();
      }
    }
    if (any && piece->part.first_step <= static_cast<int>(step)) return;
    State next = state;
    if (!Compute(step, fetch, next)) return;
    order_.push_back(false);
    Search(step + 1, fetch, next);
    order_.pop_back();
  }

  // The second iteration, which begins with the first's copies.
  void Repeat(const State& first) {
    State state = first;
    state.began = state.computed;
    size_t step = 0, fetch = 0;
    for (const bool fetches : order_) {
      if (!(fetches ? Fetch(fetch, state) : Compute(step, fetch, state))) return;
      ++(fetches ? fetch : step);
      if (state.computed - state.began >= Goal()) return;
    }
    best_ = state.computed - state.began;
  }

  struct OfStep {
    size_t fetches = 0;  // how many are for it
    size_t created = 0;  // bytes that it claims
    size_t freed = 0;    // bytes that it leaves without a write-back
    std::vector<int> written = {};
  };

  const AccessTrace& trace_;
  const PagingCosts costs_;
  const size_t capacity_;
  double best_, working_ = 0;
  int64_t nodes_left_;
  std::vector<std::vector<Variant>> variants_;  // by block
  std::vector<uint8_t> chosen_;                 // by block
  std::vector<size_t> here_;                    // by step: bytes
  std::vector<Set> sets_;
  // Of one set.
  size_t room_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int> fetches_;  // pieces, in order
  std::vector<OfStep> of_step_;
  std::vector<bool> order_;  // what has been claimed: a fetch or a step
  std::vector<double> written_;
};

// seconds: of a plan that is known.  The result is no slower.  It gives up after `most_nodes`.
// Preconditions: states are device roots without groups, of a multiple of kPlanAlignment bytes,
// none is pinned, and no step runs again.
OptimalPlan FindOptimalPlan(const AccessTrace& trace, const PagingCosts& costs,
                            size_t capacity_bytes, double seconds, int64_t most_nodes) {
  for (const TraceState& state : trace.states) {
    GYRE_CHECK(state.arena == Arena::kDevice && state.view_of < 0 && state.contiguous_group < 0);
    GYRE_CHECK(!state.pinned && state.bytes % kPlanAlignment == 0);
  }
  return Solver(trace, costs, capacity_bytes, seconds, most_nodes).Run();
}

// --- Plans beside it -----------------------------------------------------------------------------

constexpr int kNets = 200;
constexpr int64_t kMostNodes = 2'000'000;

// 2 to 6 unequal layers, some of which read what one long before them made.
AccessTrace SmallNet(std::mt19937_64& rng, int layers) {
  AccessTrace trace = TrainingTrace(rng(), layers);
  const auto below = [&rng](int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); };
  for (TraceStep& step : trace.steps) step.repeatable = false;
  for (int i = 0; i < layers; ++i) {
    TraceStep &forward = trace.steps[i], &backward = trace.steps[2 * layers - 1 - i];
    forward.seconds = 1e-6 * (1 + below(100));
    backward.seconds = forward.seconds * (1.5 + 0.01 * below(100));
    if (i < 2 || below(4) > 0) continue;
    const TraceTouch skip = {3 * below(i - 1), true, false};  // an output
    forward.touches.push_back(skip);
    if (below(2) == 0) backward.touches.push_back(skip);
  }
  return trace;
}

TEST(OptimalPlan, PlansAreCloseToIt) {
  std::vector<double> ratios;
  int proven = 0;
  for (int i = 0; i < kNets; ++i) {
    SCOPED_TRACE(i);
    std::mt19937_64 rng(1000 + static_cast<uint64_t>(i));
    const int layers = 2 + static_cast<int>(rng() % 5);
    const AccessTrace trace = SmallNet(rng, layers);
    const size_t least = FindLargestStep(trace).bytes;
    const size_t most = PlanMemory(trace, ~size_t{0})->device_bytes;
    const double share = std::vector<double>{0, 0.05, 0.15, 0.3, 0.5, 0.7}[rng() % 6];
    const size_t capacity = least + static_cast<size_t>(share * static_cast<double>(most - least));
    // Seconds of all outputs' copies, by those of the forward pass.
    const double kappa = std::vector<double>{0.25, 0.5, 1, 2, 3, 6}[rng() % 6];
    double bytes = 0, forward = 0;
    for (int layer = 0; layer < layers; ++layer) {
      bytes += static_cast<double>(trace.states[3 * layer].bytes);
      forward += trace.steps[layer].seconds;
    }
    const double bandwidth = bytes / (kappa * forward);
    const PagingCosts costs = {.to_device_bytes_per_s = bandwidth,
                               .to_host_bytes_per_s = bandwidth};
    const absl::StatusOr<PagingPlan> plan = PlanPaging(trace, costs, {.capacity_bytes = capacity});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const OptimalPlan optimal = FindOptimalPlan(trace, costs, capacity, plan->seconds, kMostNodes);
    proven += optimal.proven;
    ratios.push_back(plan->seconds / optimal.seconds);
  }
  std::ranges::sort(ratios);
  const double median = ratios[kNets / 2], worst = ratios.back();
  printf(
      "time by the optimal: median %.4f, 90 %% below %.4f, 99 %% below %.4f, worst %.4f; "
      "%d of %d proven\n",
      median, ratios[kNets * 9 / 10], ratios[kNets * 99 / 100], worst, proven, kNets);
  EXPECT_LE(median, 1.03);
  EXPECT_LE(worst, 1.15);
  EXPECT_GE(worst, 1.05) << "the solver finds nothing better";
  EXPECT_GE(proven, kNets * 95 / 100);
}

}  // namespace
}  // namespace gyre
