// What steps compute from paged memory, bit for bit what they compute from memory of their own,
// over random traces.

#include "memory/pager/pager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
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
  bool hosts = false;
};

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
  return {absl::OkStatus(),
          plan->fetched_bytes > 0,
          plan->written_bytes > 0,
          positions > steps,
          plan->disk_read_bytes > 0 && plan->disk_written_bytes > 0,
          plan->self_contained && plan->fetched_bytes + plan->written_bytes > 0,
          !plan->host_steps.empty()};
}

TEST(Pager, StepsComputeTheSameBits) {
  int fetch = 0, write_back = 0, repeat = 0, disk = 0, captured = 0, host = 0;
  for (const Outcome& outcome : TryCases(kCases, TryCase)) {
    fetch += outcome.fetches;
    write_back += outcome.writes_back;
    repeat += outcome.repeats;
    disk += outcome.disk;
    captured += outcome.captured;
    host += outcome.hosts;
  }
  // Else little has been tried.
  EXPECT_GT(fetch, kCases / 2);
  EXPECT_GT(write_back, kCases / 2);
  EXPECT_GT(repeat, kCases / 10);
  EXPECT_GT(disk, kCases / 8);
  EXPECT_GT(captured, kCases / (kSanitized ? 10 : 5));
  EXPECT_GT(host, kCases / 8);
}

}  // namespace
}  // namespace gyre
