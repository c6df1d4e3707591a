// What steps compute where blocks travel in 16 bits, bit for bit what they compute from plain
// memory of which the very stays that a plan sends out are rounded: over random nets, pages on disk
// and steps that run again among them.

#include "memory/pager/page_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/half.h"
#include "tests/memory/paged_run.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

constexpr int kCases = kSanitized ? 60 : 400;

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

// Layers with a parameter each, which backward reads and writes; what each leaves may travel in 16
// bits or not, may have a view that may not, and sizes that are no whole pages in 16 bits.
AccessTrace RandomNet(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto below = [&rng](uint64_t n) { return rng() % n; };
  const int layers = 3 + static_cast<int>(below(6));
  AccessTrace trace;
  std::vector<int> outputs, parameters;
  const auto add = [&](TraceState state) {
    trace.states.push_back(std::move(state));
    return static_cast<int>(trace.states.size()) - 1;
  };
  for (int i = 0; i < layers; ++i) {
    outputs.push_back(add({.name = absl::StrCat("output ", i),
                           .bytes = 4 * (1 + below(12 * kPlanAlignment / 4)),
                           .may_narrow = below(4) > 0}));
    const size_t bytes = trace.states[outputs[i]].bytes;
    if (below(4) == 0) {
      add({.name = "view", .bytes = bytes, .view_of = outputs[i], .may_narrow = below(2) > 0});
    }
    parameters.push_back(add({.name = absl::StrCat("parameter ", i),
                              .bytes = kPlanAlignment * below(3),
                              .persistent = true}));
  }
  for (int i = 0; i < layers; ++i) {
    TraceStep forward{.name = absl::StrCat("forward ", i), .seconds = 1e-6 * below(40)};
    if (i > 0) forward.touches.push_back({outputs[i - 1], true, false});
    forward.touches.push_back({parameters[i], true, false});
    forward.touches.push_back({outputs[i], false, true});
    forward.repeatable = below(2) == 0;
    trace.steps.push_back(std::move(forward));
  }
  for (int i = layers - 1; i >= 0; --i) {
    TraceStep backward{.name = absl::StrCat("backward ", i), .seconds = 1e-6 * below(40)};
    backward.touches.push_back({parameters[i], true, true});
    // Some write what they have read: it leaves anew.
    backward.touches.push_back({outputs[i], true, below(4) == 0});
    if (i > 0) backward.touches.push_back({outputs[i - 1], true, false});
    trace.steps.push_back(std::move(backward));
  }
  for (int i = 0; i < layers; i += 2) {
    trace.steps.push_back(
        {.name = absl::StrCat("see ", i), .touches = {{outputs[i], true, false}}});
  }
  return trace;
}

// Each block has memory of its own, and a page of its own.  The sums by iteration and position.
template <typename Narrow>
std::vector<uint64_t> RunPlainly(const AccessTrace& trace, const std::vector<Work>& work,
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

struct Outcome {
  absl::Status status;
  bool rounds = false, repeats = false, disk = false;
};

template <typename Narrow>
Outcome TryCase(uint64_t seed) {
  const AccessTrace trace = RandomNet(seed);
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
  if (paged->sums != RunPlainly<Narrow>(trace, work, *plan)) {
    return {absl::InternalError("some step read other numbers")};
  }
  return {absl::OkStatus(), plan->rounds(), plan->order.size() > trace.steps.size(),
          plan->disk_read_bytes > 0};
}

TEST(PageCopies, RoundWhatThePlanSendsOutAndNothingElse) {
  int rounds = 0, repeats = 0, disk = 0;
  for (const Outcome& outcome : TryCases(kCases, [](uint64_t seed) {
         return seed / 24 % 2 == 0 ? TryCase<BFloat16>(seed) : TryCase<Half>(seed);
       })) {
    rounds += outcome.rounds;
    repeats += outcome.repeats;
    disk += outcome.disk;
  }
  // Else little has been tried.
  EXPECT_GT(rounds, kCases / 2);
  EXPECT_GT(repeats, kCases / 20);
  EXPECT_GT(disk, kCases / 8);
}

// --- Plans ---------------------------------------------------------------------------------------

// Of 64 pages each; the device holds two.
AccessTrace FourLayers(bool may_narrow) {
  AccessTrace trace;
  for (int i = 0; i < 4; ++i) {
    trace.states.push_back(
        {.name = absl::StrCat(i), .bytes = 64 * kPlanAlignment, .may_narrow = may_narrow});
    trace.steps.push_back({.name = absl::StrCat("forward ", i), .seconds = 1e-3});
    trace.steps.back().touches.push_back({i, false, true});
    if (i > 0) trace.steps.back().touches.push_back({i - 1, true, false});
  }
  for (int i = 3; i >= 0; --i) {
    trace.steps.push_back({.name = "backward", .touches = {{i, true, false}}, .seconds = 1e-3});
  }
  return trace;
}

TEST(PageCopies, HalveBytesPagesAndTimeForAnEighthOfABlock) {
  const AccessTrace wide = FourLayers(false), narrow = FourLayers(true);
  const size_t block = 64 * kPlanAlignment;
  const size_t least = FindLargestStep(wide).bytes;
  ASSERT_EQ(least, 2 * block);
  // Two slots of an eighth of what travels.
  ASSERT_EQ(FindLargestStep(narrow).bytes, least + block / 8);
  const PagingCosts costs = {
      .to_device_bytes_per_s = 1e8, .to_host_bytes_per_s = 1e8, .convert_bytes_per_s = 1e9};
  const auto before = PlanPaging(wide, costs, {.capacity_bytes = least});
  const auto after = PlanPaging(narrow, costs, {.capacity_bytes = least + block / 8});
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  EXPECT_FALSE(before->rounds());
  EXPECT_TRUE(after->rounds());
  EXPECT_EQ(after->device_staging.offset, least);
  EXPECT_EQ(after->device_bytes, least + block / 8);
  EXPECT_EQ(before->fetched_bytes, 2 * block);
  EXPECT_EQ(after->fetched_bytes, block);
  EXPECT_EQ(2 * after->written_bytes, before->written_bytes);
  EXPECT_EQ(2 * after->page_bytes, before->page_bytes);
  // A copy takes half as long, and a tenth for the conversion.
  const CopySeconds whole = CopySecondsOf(block, block, costs);
  const CopySeconds half = CopySecondsOf(block, block / 2, costs);
  EXPECT_DOUBLE_EQ(half.in, 0.6 * whole.in);
  EXPECT_DOUBLE_EQ(half.out, 0.6 * whole.out);
  EXPECT_LT(after->stalled_seconds, 0.61 * before->stalled_seconds);
  // One byte less is too little, and says so.
  const auto too_small = PlanPaging(narrow, costs, {.capacity_bytes = least + block / 8 - 1});
  EXPECT_EQ(too_small.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(too_small.status().message().find(absl::StrCat(least + block / 8, " bytes")),
            std::string::npos)
      << too_small.status();
}

TEST(PageCopies, OfWhatIsNotWhollyActivationsNothingIsRounded) {
  const auto page_bytes = [](const AccessTrace& trace) {
    const auto plan = PlanPaging(trace, {}, {.capacity_bytes = FindLargestStep(trace).bytes});
    GYRE_CHECK(plan.ok());
    std::vector<size_t> pages;
    for (const PagedBlock& block : plan->blocks) pages.push_back(block.page_bytes / kPlanAlignment);
    return pages;
  };
  AccessTrace trace = FourLayers(true);
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({32, 32, 32, 32}));
  trace.states[1].may_narrow = false;
  // A view, of a part.
  trace.states.push_back({.name = "view", .bytes = 4, .view_of = 2});
  // Half of three pages is two; of one page one, and nothing is won.
  trace.states[3].bytes = 3 * kPlanAlignment;
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({32, 64, 64, 2}));
  trace.states[3].bytes = 1;
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({32, 64, 64, 1}));
  // A group.
  trace.states[0].contiguous_group = trace.states[1].contiguous_group = 5;
  trace.states.back().may_narrow = true;
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({128, 32, 1}));
}

}  // namespace
}  // namespace gyre
