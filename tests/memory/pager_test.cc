// What steps compute from paged memory, bit for bit what they compute from memory of their own,
// over random traces.  Where blocks travel in 16 bits: from memory of which the very stays that a
// plan sends out are rounded.

#include "memory/pager/pager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/half.h"
#include "memory/pager/page_copies.h"
#include "tests/memory/paged_run.h"
#include "tests/memory/random_trace.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

using Rng = std::mt19937_64;

constexpr int kCases = kSanitized ? 150 : 1000;
// Blocks of some pages serve as well as of dozens.
constexpr size_t kShrink = 8;
constexpr size_t kLeastHost = 8 * kPlanAlignment;  // for copies from and to the disk

Seen RunPlainly(const AccessTrace& trace, const std::vector<Work>& work) {
  Seen seen = RoomToSee(trace, work.size());
  std::vector<std::vector<std::byte>> roots = MakeRoots(trace);
  size_t sums = 0;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (const Work& of_step : work) {
      std::vector<std::byte*> at;
      for (const Operation& operation : of_step) {
        const Root root = RootOf(trace, operation.state);
        at.push_back(roots[root.state].data() + root.offset);
      }
      if (!of_step.empty()) seen.sums[sums] = Execute(of_step, at, sums);
      ++sums;
    }
    (void)ForEachPersistent(trace, [&](int state, size_t offset) {
      std::ranges::copy(roots[state],
                        seen.persistent[iteration].begin() + static_cast<std::ptrdiff_t>(offset));
      return absl::OkStatus();
    });
  }
  return seen;
}

struct Case {
  AccessTrace trace;
  std::vector<Home> homes;  // of another net; empty: free to choose
  PagingLimits limits;      // but for homes
  PagingCosts costs;
  PlannerKind planner = PlannerKind::kAuto;
};

// To the least, or to what homes that are given may take.
void LimitHost(Case& made, bool tight) {
  made.limits.host_bytes = kLeastHost;
  size_t persistent = 0;
  for (const TraceState& state : made.trace.states) {
    persistent += state.persistent ? state.bytes + kPlanAlignment : 0;
  }
  if (!tight) made.limits.host_bytes += persistent / 2;
  for (size_t i = 0; i < made.homes.size(); ++i) {
    made.limits.host_bytes = 2 * (kLeastHost + persistent);
    if (made.homes[i] == Home::kHostPage && i % 2 == 0) made.homes[i] = Home::kDiskPage;
  }
}

Case RandomCase(uint64_t seed) {
  Case made;
  Rng rng(seed);
  const auto below = [&rng](uint64_t n) { return rng() % n; };
  AccessTrace& trace = made.trace;
  trace = seed % 2 == 0 ? RandomTrace({seed, seed})
                        : TrainingTrace(seed, 2 + static_cast<int>(below(8)));
  const bool given_homes = below(4) == 0;
  for (TraceState& state : trace.states) {
    state.bytes /= kShrink;
    state.view_offset /= kShrink;
    state.pinned = !given_homes && state.persistent && state.view_of < 0 && below(8) == 0;
  }
  // Where steps take no time, all run again that may and save a copy.
  const uint64_t most_us = below(4) == 0 ? 50 : 1;
  for (TraceStep& step : trace.steps) step.seconds = 1e-6 * static_cast<double>(below(most_us));
  // There it takes no time, so whatever saves a copy is done there.
  for (TraceStep& step : trace.steps) {
    const bool pinned = std::ranges::any_of(step.touches, [&trace](const TraceTouch& touch) {
      return trace.states[RootOf(trace, touch.state).state].pinned;
    });
    step.host_bytes = !pinned && below(3) > 0 ? 1 : 0;
  }
  for (uint64_t left = given_homes ? 1 + below(8) : 0; left > 0; --left) {
    made.homes.push_back(below(2) == 0 ? Home::kHostPage : Home::kDevice);
  }
  if (seed % 4 == 3) LimitHost(made, below(2) == 0);
  made.limits.self_contained = seed / 48 % 2 == 1;
  // Half of them have nothing but pages for homes.
  if (below(2) == 0) made.limits.most_resident_bytes = 0;
  made.costs = {below(2) == 0 ? 1e9 : 1e8, below(2) == 0 ? 1e9 : 1e8};
  const std::vector<Home>* const homes = made.homes.empty() ? nullptr : &made.homes;
  // Two of three by ours.
  if (seed / 6 % 6 == 1) made.planner = PlannerKind::kGeeps;
  if (seed / 6 % 6 == 4) made.planner = PlannerKind::kNaive;
  made.limits.capacity_bytes = FindLargestStep(trace, homes, made.planner).bytes *
                               std::vector<size_t>{20, 22, 30}[seed / 2 % 3] / 20;
  return made;
}

struct Outcome {
  absl::Status status;
  bool fetches = false, writes_back = false, repeats = false, disk = false, captured = false;
  bool hosts = false, rounds = false;
};

// Of a run by the plan that went well.
Outcome OutcomeOf(const AccessTrace& trace, const PagingPlan& plan) {
  return {.status = absl::OkStatus(),
          .fetches = plan.fetched_bytes > 0,
          .writes_back = plan.written_bytes > 0,
          .repeats = plan.order.size() > trace.steps.size(),
          .disk = plan.disk_read_bytes > 0 && plan.disk_written_bytes > 0,
          .captured = plan.self_contained && plan.fetched_bytes + plan.written_bytes > 0,
          .hosts = !plan.host_steps.empty(),
          .rounds = plan.rounds()};
}

Outcome TryCase(uint64_t seed) {
  Case made = RandomCase(seed);
  if (!made.homes.empty()) made.limits.homes = &made.homes;
  const absl::StatusOr<PagingPlan> plan =
      PlanPaging(made.trace, made.costs, made.limits, made.planner);
  if (!plan.ok()) return {plan.status()};
  const std::vector<Work> work = WorkOf(made.trace);
  const bool home_each_iteration = seed / 24 % 2 == 0;
  const absl::StatusOr<Seen> paged = RunPaged({.trace = made.trace,
                                               .work = work,
                                               .plan = *plan,
                                               .home_each_iteration = home_each_iteration,
                                               .delay_seed = 1 + 1000 * seed});
  if (!paged.ok()) return {paged.status()};
  const Seen plain = RunPlainly(made.trace, work);
  const size_t steps = work.size();
  const size_t positions = plan->order.size();
  for (size_t i = 0; i < paged->sums.size(); ++i) {
    const auto step = static_cast<size_t>(plan->order[i % positions]);
    if (paged->sums[i] == plain.sums[i / positions * steps + step]) continue;
    return {
        absl::InternalError(absl::StrCat("iteration ", i / positions, ", position ", i % positions,
                                         ", ", made.trace.steps[step].name, " read other bytes"))};
  }
  for (int i = home_each_iteration ? 0 : kIterations - 1; i < kIterations; ++i) {
    if (paged->persistent[i] == plain.persistent[i]) continue;
    return {absl::InternalError(absl::StrCat("iteration ", i, " left other bytes at home"))};
  }
  return OutcomeOf(made.trace, *plan);
}

// How many there are of which that is true.
int Count(const std::vector<Outcome>& outcomes, bool Outcome::*what) {
  return static_cast<int>(std::ranges::count(outcomes, true, what));
}

TEST(Pager, StepsComputeTheSameBits) {
  const std::vector<Outcome> outcomes = TryCases(kCases, TryCase);
  // Else little has been tried.
  EXPECT_GT(Count(outcomes, &Outcome::fetches), kCases / 2);
  EXPECT_GT(Count(outcomes, &Outcome::writes_back), kCases / 2);
  EXPECT_GT(Count(outcomes, &Outcome::repeats), kCases / 10);
  EXPECT_GT(Count(outcomes, &Outcome::disk), kCases / 8);
  EXPECT_GT(Count(outcomes, &Outcome::captured), kCases / (kSanitized ? 10 : 5));
  EXPECT_GT(Count(outcomes, &Outcome::hosts), kCases / 8);
}

// --- Pages of 16 bits ----------------------------------------------------------------------------

template <typename Narrow>
void NarrowAll(const std::byte* from, std::byte* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, from + 4 * i, 4);
    const Narrow narrow(value);
    std::memcpy(to + 2 * i, &narrow, 2);
  }
}

template <typename Narrow>
void WidenAll(const std::byte* from, std::byte* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Narrow narrow;
    std::memcpy(&narrow, from + 2 * i, 2);
    const float value = narrow;
    std::memcpy(to + 4 * i, &value, 4);
  }
}

template <typename Narrow>
NarrowKernels KernelsOf() {
  const auto enqueue = [](void (*convert)(const std::byte*, std::byte*, int64_t)) {
    return [convert](Stream& stream, const std::byte* from, std::byte* to, int64_t count) {
      return stream.Call([=] {
        convert(from, to, count);
        return absl::OkStatus();
      });
    };
  };
  return {enqueue(NarrowAll<Narrow>), enqueue(WidenAll<Narrow>)};
}

// What each layer leaves may travel in 16 bits or not, may have a view that may not, and sizes that
// are no whole pages in 16 bits.  Backward writes gradients that it has read: they leave anew.
AccessTrace NarrowNet(uint64_t seed) {
  Rng rng(seed);
  const auto below = [&rng](uint64_t n) { return rng() % n; };
  AccessTrace trace = TrainingTrace(seed, 3 + static_cast<int>(below(6)));
  const int states = static_cast<int>(trace.states.size());
  for (int i = 0; i < states; ++i) {
    TraceState& state = trace.states[i];
    state.bytes /= kShrink;
    if (state.persistent || state.bytes == 0) continue;
    state.bytes -= 4 * below(100);
    state.may_narrow = below(4) > 0;
    const bool also = below(2) > 0;
    if (below(4) > 0) continue;
    trace.states.push_back(
        {.name = "view", .bytes = trace.states[i].bytes, .view_of = i, .may_narrow = also});
  }
  for (TraceStep& step : trace.steps) step.seconds = 1e-6 * static_cast<double>(below(40));
  return trace;
}

// Each block has memory of its own, and a page of its own.  The sums by iteration and position.
template <typename Narrow>
std::vector<uint64_t> RunRounding(const AccessTrace& trace, const std::vector<Work>& work,
                                  const PagingPlan& plan) {
  std::vector<std::byte> resident(plan.device_bytes);
  std::vector<std::vector<std::byte>> blocks, pages;
  for (const PagedBlock& block : plan.blocks) {
    blocks.emplace_back(block.bytes);
    pages.emplace_back(block.bytes);
  }
  const std::vector<std::vector<std::byte>> first = MakeRoots(trace);
  (void)ForEachPersistent(trace, [&](int state, size_t) {
    const auto [block, offset] = plan.states[state];
    std::ranges::copy(first[state], (block < 0 ? resident : pages[block]).data() + offset);
    return absl::OkStatus();
  });
  std::vector<uint64_t> sums;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (int position = 0; position < static_cast<int>(plan.order.size()); ++position) {
      for (const Stay& stay : plan.stays) {
        if (stay.first_step == position && stay.fetched) blocks[stay.block] = pages[stay.block];
      }
      const int step = plan.order[position];
      std::vector<std::byte*> at;
      for (const Operation& operation : work[step]) {
        const auto [block, offset] = plan.states[operation.state];
        at.push_back((block < 0 ? resident.data() : blocks[block].data()) + offset);
      }
      sums.push_back(
          Execute(work[step], at, iteration * trace.steps.size() + static_cast<size_t>(step)));
      for (const Stay& stay : plan.stays) {
        if (stay.last_step != position || !stay.written_back) continue;
        std::vector<std::byte>& page = pages[stay.block] = blocks[stay.block];
        if (plan.blocks[stay.block].page_bytes == plan.blocks[stay.block].bytes) continue;
        const auto count = static_cast<int64_t>(page.size() / 4);
        std::vector<std::byte> narrow(page.size() / 2);
        NarrowAll<Narrow>(page.data(), narrow.data(), count);
        WidenAll<Narrow>(narrow.data(), page.data(), count);
      }
    }
  }
  return sums;
}

template <typename Narrow>
Outcome TryNarrowCase(uint64_t seed) {
  const AccessTrace trace = NarrowNet(seed);
  const PlannerKind planner = seed % 4 == 1   ? PlannerKind::kNaive
                              : seed % 8 == 2 ? PlannerKind::kGeeps
                                              : PlannerKind::kAuto;
  PagingLimits limits = {.capacity_bytes = FindLargestStep(trace, nullptr, planner).bytes};
  limits.capacity_bytes += limits.capacity_bytes / 20 * (seed % 3);
  if (seed % 3 == 0) limits.host_bytes = 8 * kPlanAlignment;
  if (seed % 2 == 0) limits.most_resident_bytes = 0;
  const auto plan = PlanPaging(trace, {.to_device_bytes_per_s = 1e9, .to_host_bytes_per_s = 1e9},
                               limits, planner);
  if (!plan.ok()) return {plan.status()};
  GYRE_CHECK(plan->device_bytes <= limits.capacity_bytes);
  const std::vector<Work> work = WorkOf(trace);
  const auto paged = RunPaged({.trace = trace,
                               .work = work,
                               .plan = *plan,
                               .home_each_iteration = false,
                               .delay_seed = 1 + 1000 * seed,
                               .kernels = KernelsOf<Narrow>()});
  if (!paged.ok()) return {paged.status()};
  if (paged->sums != RunRounding<Narrow>(trace, work, *plan)) {
    return {absl::InternalError("some step read other numbers")};
  }
  return OutcomeOf(trace, *plan);
}

TEST(Pager, WhatThePlanSendsOutIsRoundedAndNothingElse) {
  constexpr int kNarrowCases = kSanitized ? 60 : 400;
  const std::vector<Outcome> outcomes = TryCases(kNarrowCases, [](uint64_t seed) {
    return seed / 24 % 2 == 0 ? TryNarrowCase<BFloat16>(seed) : TryNarrowCase<Half>(seed);
  });
  EXPECT_GT(Count(outcomes, &Outcome::rounds), kNarrowCases / 2);
  EXPECT_GT(Count(outcomes, &Outcome::repeats), kNarrowCases / 20);
  EXPECT_GT(Count(outcomes, &Outcome::disk), kNarrowCases / 8);
}

}  // namespace
}  // namespace gyre
