// What people see of a plan: its history, against what any plan must obey; the picture, as XML with
// the history's numbers in it; the tables.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "memory/planner/paging_schedule.h"
#include "memory/report/paging_text.h"
#include "memory/report/plan_picture.h"
#include "tests/memory/random_trace.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kSlack = 1e-12;

StateKinds KindsOf(const AccessTrace& trace) {
  StateKinds kinds = {.names = {"lasts", "passes"}, .of = {}};
  for (const TraceState& state : trace.states) kinds.of.push_back(state.persistent ? 0 : 1);
  return kinds;
}

// The most bytes held at any instant.
size_t MostHeld(const PlanHistory& history) {
  size_t most = 0;
  for (const PlanHistory::Allocation& at : history.allocations) {
    if (at.begin >= at.end) continue;
    // Just after this begins: nothing else begins between two of these instants.
    const double instant = at.begin;
    size_t bytes = 0;
    for (const PlanHistory::Allocation& allocation : history.allocations) {
      if (allocation.begin <= instant && instant < allocation.end) bytes += allocation.bytes;
    }
    most = std::max(most, bytes);
  }
  return most;
}

void ExpectInOrder(const std::vector<PlanHistory::Span>& spans, double seconds) {
  double end = 0;
  for (const PlanHistory::Span& span : spans) {
    EXPECT_GE(span.begin, end - kSlack) << span.name;
    EXPECT_LE(span.begin, span.end + kSlack) << span.name;
    end = span.end;
  }
  EXPECT_LE(end, seconds + kSlack);
}

// What is copied is held as long.
void ExpectHeld(const std::vector<PlanHistory::Span>& copies, const PlanHistory& history) {
  for (const PlanHistory::Span& copy : copies) {
    const bool held =
        std::ranges::any_of(history.allocations, [&](const PlanHistory::Allocation& allocation) {
          return allocation.bytes == copy.bytes && allocation.begin <= copy.begin &&
                 copy.end <= allocation.end;
        });
    EXPECT_TRUE(held) << copy.name << " " << copy.begin << " to " << copy.end;
  }
}

// Elements opened and closed in turn, each attribute in quotes; no "<" or "&" of a name's.
void ExpectWellFormed(const std::string& text) {
  std::vector<std::string> open;
  const std::regex tag(
      R"(<(/?)([a-z]+)((?: [a-zA-Z:-]+="[^"<>]*")*)\s*(/?)>|<!DOCTYPE html>|[<>])");
  for (std::sregex_iterator at(text.begin(), text.end(), tag), end; at != end; ++at) {
    const std::smatch& found = *at;
    if (found.str() == "<!DOCTYPE html>") continue;
    ASSERT_TRUE(found[2].matched) << "at " << found.position() << ": "
                                  << text.substr(found.position(), 60);
    if (found[4].length() > 0) continue;
    if (found[1].length() == 0) {
      open.push_back(found[2]);
    } else {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), found[2]);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  const std::regex entity("&(?!amp;|lt;|gt;|quot;)");
  EXPECT_FALSE(std::regex_search(text, entity));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("inf")));
}

TEST(PlanReport, HistoriesObeyTheirPlans) {
  int paged = 0, again = 0, waited = 0, over = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    AccessTrace trace = seed % 2 ? TrainingTrace(seed, 1 + static_cast<int>(seed % 17))
                                 : RandomTrace({.persistent = seed, .rest = seed});
    std::mt19937_64 random(seed);
    for (TraceStep& step : trace.steps) {
      step.seconds = static_cast<double>(random() % 1000) * 1e-6;
      step.repeatable = random() % 2 == 0;
    }
    const StateKinds kinds = KindsOf(trace);
    const auto resident = PlanMemory(trace, ~size_t{0});
    ASSERT_TRUE(resident.ok()) << resident.status();
    const PlanHistory all = HistoryOf(trace, kinds, *resident);
    ExpectInOrder(all.steps, all.seconds);
    EXPECT_LE(MostHeld(all), resident->device_bytes + resident->communication_bytes);
    EXPECT_DOUBLE_EQ(all.seconds, WorkSeconds(trace));
    ExpectWellFormed(PlanPicture(all, resident->device_bytes, "<all> & \"more\""));

    const PagingCosts costs = {.to_device_bytes_per_s = 1e9, .to_host_bytes_per_s = 5e8};
    const size_t least = FindLargestStep(trace).bytes;
    const auto plan = PlanPaging(trace, costs, {.capacity_bytes = least + random() % (least + 1)});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const PlanHistory history = HistoryOf(trace, kinds, *plan, costs);
    EXPECT_EQ(history.seconds, plan->seconds);
    EXPECT_EQ(history.stalled_seconds, plan->stalled_seconds);
    EXPECT_EQ(history.steps.size(), plan->order.size());
    ExpectInOrder(history.steps, history.seconds);
    ExpectInOrder(history.fetches, history.seconds);
    ExpectInOrder(history.write_backs, history.seconds);
    EXPECT_LE(MostHeld(history), plan->device_bytes + resident->communication_bytes);
    ExpectHeld(history.fetches, history);
    ExpectHeld(history.write_backs, history);
    size_t fetched = 0;
    for (const PlanHistory::Span& fetch : history.fetches) fetched += fetch.bytes;
    EXPECT_EQ(fetched, plan->fetched_bytes);
    ExpectWellFormed(PlanPage(history, least, "a net", DescribePlaces(trace, *plan)));
    paged += fetched > 0 ? 1 : 0;
    again += plan->order.size() > trace.steps.size() ? 1 : 0;
    waited += plan->stalled_seconds > 0 ? 1 : 0;
    over += std::ranges::count(history.write_backs, 0.0, &PlanHistory::Span::begin) > 0 ? 1 : 0;
  }
  EXPECT_GT(paged, 50);
  EXPECT_GT(again, 5);
  EXPECT_GT(waited, 50);
  EXPECT_GT(over, 5);
}

// Two layers of which one fits, as long as a copy of half a layer's bytes.
struct Paged {
  AccessTrace trace = EqualLayers(4, 2, 0.001);
  PagingCosts costs = {.to_device_bytes_per_s = 8.192e6, .to_host_bytes_per_s = 8.192e6};
  PagingPlan plan = *PlanPaging(trace, costs, {.capacity_bytes = FindLargestStep(trace).bytes});
};

TEST(PlanReport, Picture) {
  const Paged paged;
  const PlanHistory history = HistoryOf(paged.trace, KindsOf(paged.trace), paged.plan, paged.costs);
  const std::string svg = PlanPicture(history, 20480, "a < b");
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, HasSubstr(">a &lt; b</text>"));
  EXPECT_THAT(svg, HasSubstr("capacity 20.0 KiB</text>"));
  EXPECT_THAT(svg, HasSubstr(">fetches</text>"));
  EXPECT_THAT(svg, HasSubstr(">write-backs</text>"));
  EXPECT_THAT(svg, HasSubstr(">waits</text>"));
  for (const PlanHistory::Span& fetch : history.fetches) {
    EXPECT_THAT(svg, HasSubstr(absl::StrCat("<title>", fetch.name, ": ")));
  }
  EXPECT_THAT(PlanPicture(history, 1 << 30, ""), HasSubstr("capacity 1.0 GiB, far above"));

  const std::string page = PlanPage(history, 20480, "a", "1 < 2\n");
  EXPECT_THAT(page, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("<pre>1 &lt; 2\n</pre>"));
  EXPECT_THAT(page, Not(HasSubstr("href")));  // no other file
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

TEST(PlanReport, PicturesOfLittle) {
  ExpectWellFormed(PlanPicture({}, 0, ""));
  ExpectWellFormed(PlanPicture({.kinds = {"a"}, .allocations = {{.bytes = 3}}}, 1, ""));
  PlanHistory many = {.kinds = {"a"}, .seconds = 1};
  for (int s = 0; s < 100'000; ++s) {
    many.steps.push_back({.name = "s", .begin = s * 1e-5, .end = (s + 1) * 1e-5});
  }
  EXPECT_LT(PlanPicture(many, 1, "").size(), 200'000u);  // as wide as it can be seen
}

TEST(PlanReport, Tables) {
  const Paged paged;
  const std::string places = DescribePlaces(paged.trace, paged.plan);
  EXPECT_THAT(places, HasSubstr("in host memory between"));
  EXPECT_THAT(places, HasSubstr("; in 1, out 1"));
  const std::string times = DescribeTimes(paged.trace, paged.plan, paged.costs);
  EXPECT_THAT(times,
              HasSubstr(absl::StrFormat("expected %.3f ms, all in memory 12.000 ms: %.1f %%",
                                        1e3 * paged.plan.seconds, 1.2 / paged.plan.seconds)));
  EXPECT_THAT(times, HasSubstr(absl::StrFormat("waits %.3f ms", 1e3 * paged.plan.stalled_seconds)));
  EXPECT_THAT(times, HasSubstr("(0.00819 GB/s)"));
  EXPECT_THAT(times, Not(HasSubstr("disk")));
  EXPECT_THAT(times, Not(HasSubstr("again")));
}

TEST(PlanReport, TheLargestComeFirstAndTheRestInOneLine) {
  AccessTrace trace = EqualLayers(20, 1, 0.001);
  trace.states[7].bytes = 3 * 4096;
  trace.states[8].name = std::string(100, 'l');
  const PagingCosts costs;
  const auto plan = *PlanPaging(trace, costs, {.capacity_bytes = FindLargestStep(trace).bytes});
  const std::string text = DescribePlaces(trace, plan);
  const std::string after = text.substr(text.find("the largest"));
  EXPECT_THAT(after.substr(after.find('\n'), 20), HasSubstr("12.0 KiB"));
  EXPECT_THAT(text, HasSubstr(" smaller ones\n"));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

}  // namespace
}  // namespace gyre
