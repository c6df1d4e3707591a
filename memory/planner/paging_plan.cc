#include "memory/planner/paging_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"
#include "memory/planner/geeps_plan.h"
#include "memory/planner/layout_search.h"
#include "memory/planner/page_assignment.h"
#include "memory/planner/page_layout.h"
#include "memory/planner/paging_schedule.h"
#include "memory/planner/step_choices.h"
#include "memory/trace/trace_blocks.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

// How finely the share of persistent blocks that stay on the device is searched.
constexpr int kShares = 8;
// Budget of the search for a better layout: a thirtieth of a second for 12 steps; packing takes the
// square of their number, and of more than 54 too few layouts could be tried.
constexpr size_t kSearchWork = 3'000'000, kMostSearch = 30'000, kLeastSearch = 1'000;
constexpr double kRounding = 1e-9;  // of a sum of times, relative

constexpr LayoutPolicy kPolicies[] = {{.longest_free = true, .by_time = true},
                                      {.longest_free = true, .by_time = false},
                                      {.longest_free = false, .by_time = true},
                                      {.longest_free = false, .by_time = false}};

// Of the staging of copies in 16 bits: an eighth of the largest, so that it is small beside what
// steps touch.  A bus takes 50 us or more for the most, starting a copy and a kernel about 5.
constexpr size_t kSlotShare = 8;
constexpr size_t kMostSlotBytes = size_t{1} << 20;

size_t SlotBytes(const TraceBlocks& cut) {
  size_t largest = 0;
  for (const TraceBlock& block : cut.blocks) {
    if (block.page_bytes < block.bytes) largest = std::max(largest, block.page_bytes);
  }
  return std::min(RoundUp(largest / kSlotShare, kPlanAlignment), kMostSlotBytes);
}

class PagingPlanner {
 public:
  PagingPlanner(const AccessTrace& trace, const PagingCosts& costs, const PagingLimits& limits,
                const TraceBlocks& cut, PlannerKind kind)
      : kind_(kind),
        trace_(trace),
        costs_(costs),
        limits_(limits),
        room_(limits.capacity_bytes -
              std::min(limits.capacity_bytes, limits.reserved_bytes + 2 * SlotBytes(cut))),
        cut_(cut),
        touches_(FindTouches(trace, cut)),
        resident_(cut.blocks.size()) {
    for (const TraceBlock& block : cut.blocks) {
      input_.bytes.push_back(block.bytes);
      input_.copies.push_back(CopySecondsOf(block.bytes, block.page_bytes, costs));
      input_.persistent.push_back(block.persistent);
    }
    on_host_.resize(steps());
    if (limits.host_steps != nullptr) {
      for (const int step : *limits.host_steps) on_host_[step] = true;
    }
    SetOrder(InOrder());
    FindHomes();
  }

  // Without the staging of copies in 16 bits.
  LargestStep Largest(PlannerKind kind) const {
    LargestStep largest;
    const size_t times = kind == PlannerKind::kGeeps ? 2 : 1;
    const size_t always = BytesOf(resident_);
    const std::vector<size_t> touched = TouchedBytes();
    for (int step = 0; step < static_cast<int>(steps()); ++step) {
      const size_t bytes = always + times * touched[step];
      if (bytes > largest.bytes || step == 0) largest = {step, bytes};
    }
    return steps() == 0 ? LargestStep{0, always} : largest;
  }

  absl::StatusOr<PagingPlan> Plan() {
    const LargestStep largest = Largest(kind_);
    if (largest.bytes > room_) return TooSmall(largest);
    switch (kind_) {
      case PlannerKind::kNaive:
        return PlanWith(resident_, LayOutNaively(InputWith(resident_)), /*foreground=*/true);
      case PlannerKind::kGeeps:
        return PlanAsGeeps();
      default:
        GYRE_CHECK(kind_ == PlannerKind::kAuto);
        return PlanAutomatically();
    }
  }

 private:
  absl::StatusOr<PagingPlan> PlanAutomatically() {
    TryHomes();
    if (BestWaitsForNothing()) return std::move(best_.plan);
    // Copies do not hide, but may by GeePS's plan.
    absl::StatusOr<PagingPlan> geeps;
    const bool none_on_host = std::ranges::none_of(on_host_, std::identity());
    if (none_on_host && steps() <= kManySteps && Largest(PlannerKind::kGeeps).bytes <= room_) {
      geeps = PlanAsGeeps();
    }
    if (!best_.plan.ok()) return geeps.ok() ? geeps : std::move(best_.plan);
    if (limits_.host_steps == nullptr) TryHostSteps();
    TryOrders();
    TryLayouts();
    return geeps.ok() && geeps->seconds < best_.plan->seconds ? geeps : std::move(best_.plan);
  }

  // Seconds of the plan with these stays; infinite if its pages have no place.
  double Try(const std::vector<bool>& resident, const LayoutPolicy& policy,
             std::vector<Stay> stays) {
    absl::StatusOr<PagingPlan> plan = PlanWith(resident, std::move(stays));
    const double seconds = plan.ok() ? plan->seconds : std::numeric_limits<double>::infinity();
    if (best_.resident.empty() ||
        (plan.ok() && (!best_.plan.ok() || seconds < best_.plan->seconds))) {
      best_ = {std::move(plan), resident, on_host_, policy};
    }
    return seconds;
  }
  double Try(const std::vector<bool>& resident, const LayoutPolicy& policy) {
    return Try(resident, policy, LayOut(InputWith(resident), policy));
  }

  bool BestWaitsForNothing() const {  // then none is faster
    return best_.plan.ok() && best_.plan->stalled_seconds <= kRounding * best_.plan->seconds;
  }

  void TryHomes() {
    for (const std::vector<bool>& resident : ChoicesOfHomes()) {
      for (const LayoutPolicy& policy : kPolicies) {
        Try(resident, policy);
        if (BestWaitsForNothing()) return;
        if (steps() > kManySteps) break;
      }
    }
  }

  void TryHostSteps() {
    ChooseHostSteps(trace_, cut_, touches_, resident_, best_.plan->seconds,
                    [&, policy = best_.policy](std::vector<bool> on_host) {
                      on_host_ = std::move(on_host);
                      SetOrder(InOrder());
                      double least = std::numeric_limits<double>::infinity();
                      for (const std::vector<bool>& resident : ChoicesOfHomes()) {
                        least = std::min(least, Try(resident, policy));
                      }
                      return least;
                    });
    on_host_ = best_.on_host;
  }

  // Which steps run again, and when.
  void TryOrders() {
    const std::vector<bool> resident = best_.resident;
    ChooseOrder(trace_, cut_, touches_, best_.plan->seconds,
                [&, policy = best_.policy](std::vector<int> order) {
                  SetOrder(std::move(order));
                  return Try(resident, policy);
                });
  }

  // Once steps have been measured; before, it is too early.
  void TryLayouts() {
    const int budget = input_.begins.back() > 0 ? Budget(best_.plan->order.size()) : 0;
    if (budget == 0) return;
    SetOrder(std::vector<int>(best_.plan->order));
    const std::vector<bool> near = best_.resident;
    const std::vector<Stay> stays = LayOut(InputWith(near), best_.policy);
    input_.accesses = all_;
    SearchLayouts(Search(), near, stays, best_.plan->seconds, budget,
                  [&, policy = best_.policy](const std::vector<bool>& choice,
                                             const std::vector<Stay>& tried) {
                    return Try(choice, policy, tried);
                  });
  }

  // The best of what GeePS leaves open: what it pins first, and how it searches its buffer.
  absl::StatusOr<PagingPlan> PlanAsGeeps() {
    absl::StatusOr<PagingPlan> best;
    const size_t most = limits_.homes == nullptr ? limits_.most_resident_bytes : 0;
    for (const bool last_first : {false, true}) {
      input_.accesses = all_;
      const std::vector<bool> resident = PinAsGeeps({.all = input_,
                                                     .resident = resident_,
                                                     .capacity_bytes = room_,
                                                     .last_first = last_first,
                                                     .most_persistent_bytes = most});
      const LayoutInput& input = InputWith(resident);
      for (const bool next_fit : {true, false}) {
        ASSIGN_OR_RETURN(PagingPlan plan, PlanWith(resident, LayOutAsGeeps(input, next_fit)));
        if (!best.ok() || plan.seconds < best->seconds) best = std::move(plan);
      }
    }
    return best;
  }

  size_t steps() const { return trace_.steps.size(); }
  std::vector<int> InOrder() const {
    std::vector<int> order(steps());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  // Whether the block has memory of the device arena at all.
  bool Placed(const TraceBlock& block) const {
    return block.arena == Arena::kDevice && block.bytes > 0 &&
           (block.persistent || block.last_step >= 0);
  }

  // Which steps run, from now on, those of on_host_ on the host: what is said by step below is by
  // position.
  void SetOrder(std::vector<int> order) {
    order_ = std::move(order);
    all_.assign(cut_.blocks.size(), {});
    input_.begins = {0};
    for (int position = 0; position < static_cast<int>(order_.size()); ++position) {
      const int step = order_[position];
      input_.begins.push_back(input_.begins.back() + trace_.steps[step].seconds);
      for (const auto& [b, reads, writes] : touches_[step]) {
        const bool left_alone = on_host_[step] && cut_.blocks[b].pinned;
        if (!Placed(cut_.blocks[b]) || left_alone) continue;
        all_[b].push_back({position, reads, writes, on_host_[step]});
      }
    }
  }

  // What has no choice.
  void FindHomes() {
    const std::vector<Home>* const given = limits_.homes;
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      const TraceBlock& block = cut_.blocks[b];
      if (block.arena != Arena::kDevice || !block.persistent) continue;
      const size_t home = persistent_.size();
      const bool may_leave = given == nullptr
                                 ? !block.pinned
                                 : home < given->size() && (*given)[home] != Home::kDevice;
      resident_[b] = !may_leave && Placed(block);
      persistent_.push_back(static_cast<int>(b));
    }
  }

  // By step: of what it touches on the device and is not resident anyhow.
  std::vector<size_t> TouchedBytes() const {
    std::vector<size_t> bytes(order_.size());
    for (size_t b = 0; b < all_.size(); ++b) {
      for (const BlockAccess& access : all_[b]) {
        if (!resident_[b] && !access.on_host) bytes[access.step] += cut_.blocks[b].bytes;
      }
    }
    return bytes;
  }

  // Whether it may be resident or not, as one likes.  Of persistent blocks.
  bool IsFree(int b) const {
    return limits_.homes == nullptr && !resident_[b] && Placed(cut_.blocks[b]) &&
           std::ranges::none_of(all_[b], &BlockAccess::on_host);
  }

  size_t BytesOf(const std::vector<bool>& resident) const {
    size_t bytes = 0;
    for (size_t b = 0; b < resident.size(); ++b) bytes += resident[b] ? cut_.blocks[b].bytes : 0;
    return bytes;
  }

  // Sets of blocks that stay for good, from none that need not to as many as fit.  Those first that
  // are touched most often for their bytes' sake, and of these the small ones.
  std::vector<std::vector<bool>> ChoicesOfHomes() const {
    std::vector<std::vector<bool>> choices = {resident_};
    std::vector<int> order;
    std::ranges::copy_if(persistent_, std::back_inserter(order), [&](int b) { return IsFree(b); });
    std::ranges::stable_sort(order, {}, [&](int b) {
      return std::pair(-static_cast<int>(all_[b].size()), cut_.blocks[b].bytes);
    });
    std::vector<bool> resident = resident_;
    std::vector<size_t> others = TouchedBytes();  // by step
    size_t always = BytesOf(resident_);
    size_t next = 0;
    const size_t most = std::min(limits_.most_resident_bytes, room_);
    for (const int b : order) {
      const size_t bytes = cut_.blocks[b].bytes;
      if (always + bytes > most || !Fits(always + bytes, others, b)) continue;
      always += bytes;
      resident[b] = true;
      for (const BlockAccess& access : all_[b]) others[access.step] -= bytes;
      if (always < next) continue;
      choices.push_back(resident);
      next = always + room_ / kShares;
    }
    if (choices.back() != resident) choices.push_back(resident);
    return choices;
  }

  bool Fits(size_t always, std::vector<size_t> others, int with) const {
    for (const BlockAccess& access : all_[with]) others[access.step] -= cut_.blocks[with].bytes;
    return std::ranges::all_of(others, [&](size_t touched) { return always + touched <= room_; });
  }

  // What is left beside those.
  const LayoutInput& InputWith(const std::vector<bool>& resident) {
    input_.begin = BytesOf(resident);
    input_.end = room_ / kPlanAlignment * kPlanAlignment;
    input_.accesses = all_;
    for (size_t b = 0; b < resident.size(); ++b) {
      if (resident[b]) input_.accesses[b].clear();
    }
    return input_;
  }

  // Of the search for a better layout of so many steps.
  static int Budget(size_t steps) {
    const size_t budget = std::min<size_t>(kSearchWork / (1 + steps * steps), kMostSearch);
    return budget < kLeastSearch ? 0 : static_cast<int>(budget);
  }

  LayoutSearch Search() const {
    LayoutSearch search{.all = input_,
                        .may_choose = std::vector<bool>(cut_.blocks.size()),
                        .seconds = {},
                        .most_resident = limits_.most_resident_bytes};
    for (const int step : order_) search.seconds.push_back(trace_.steps[step].seconds);
    for (const int b : persistent_) search.may_choose[b] = IsFree(b);
    return search;
  }

  // stays: by block of the trace; `paged`, of the plan's blocks, too.
  void TakeStays(std::vector<Stay> stays, const std::vector<int>& paged, PagingPlan& plan) const {
    plan.stays = std::move(stays);
    for (Stay& stay : plan.stays) {
      stay.block = paged[stay.block];
      const PagedBlock& block = plan.blocks[stay.block];
      plan.device_bytes = std::max(plan.device_bytes, stay.offset + block.bytes);
      if (stay.fetched) plan.fetched_bytes += block.page_bytes;
      if (stay.written_back) plan.written_bytes += block.page_bytes;
      if (!stay.fetched || block.page_bytes == block.bytes) continue;
      plan.device_staging.slot_bytes = SlotBytes(cut_);
    }
    plan.device_staging.offset = plan.device_bytes;
    plan.device_bytes += plan.device_staging.bytes();
  }

  std::vector<PagingPlan::HostStep> HostStepsOn(const std::vector<int>& paged) const {
    std::vector<PagingPlan::HostStep> steps;
    for (int position = 0; position < static_cast<int>(order_.size()); ++position) {
      if (on_host_[order_[position]]) steps.push_back({position});
    }
    for (size_t b = 0; b < all_.size(); ++b) {
      for (const BlockAccess& access : all_[b]) {
        if (!access.on_host) continue;
        std::ranges::lower_bound(steps, access.step, {}, &PagingPlan::HostStep::position)
            ->blocks.push_back(paged[b]);
      }
    }
    return steps;
  }

  // stays: by block of the trace.
  absl::StatusOr<PagingPlan> PlanWith(const std::vector<bool>& resident, std::vector<Stay> stays,
                                      bool foreground = false) const {
    PagingPlan plan;
    plan.order = order_;
    plan.foreground = foreground;
    std::vector<size_t> offsets(cut_.blocks.size());
    std::vector<int> paged(cut_.blocks.size(), -1);
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      if (!resident[b]) continue;
      offsets[b] = plan.device_bytes;
      plan.device_bytes += cut_.blocks[b].bytes;
    }
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      const TraceBlock& block = cut_.blocks[b];
      if (resident[b] || !Placed(block)) continue;
      paged[b] = static_cast<int>(plan.blocks.size());
      const int largest = *std::ranges::max_element(
          block.members, {}, [this](int state) { return trace_.states[state].bytes; });
      plan.blocks.push_back({.states = block.members,
                             .name = trace_.states[largest].name,
                             .bytes = block.bytes,
                             .page_bytes = block.page_bytes,
                             .page = kNoPage,
                             .persistent = block.persistent});
    }
    TakeStays(std::move(stays), paged, plan);
    for (const auto& [b, offset] : cut_.states) {
      plan.states.push_back({paged[b], offsets[b] + offset});
    }
    for (size_t i = 0; limits_.homes != nullptr && i < persistent_.size(); ++i) {
      const int b = paged[persistent_[i]];
      if (b >= 0) plan.blocks[b].on_disk = (*limits_.homes)[i] == Home::kDiskPage;
    }
    plan.host_steps = HostStepsOn(paged);
    RETURN_IF_ERROR(GivePages(trace_, limits_, plan));
    plan.self_contained = limits_.self_contained && plan.disk_bytes == 0 && plan.host_steps.empty();
    for (const int b : persistent_) {
      plan.homes.push_back(paged[b] < 0                    ? Home::kDevice
                           : plan.blocks[paged[b]].on_disk ? Home::kDiskPage
                                                           : Home::kHostPage);
    }
    const PagingTimes times = PredictTimes(trace_, plan, SchedulePaging(plan), costs_);
    plan.seconds = times.seconds;
    plan.stalled_seconds = times.stalled_seconds;
    return plan;
  }

  absl::Status TooSmall(const LargestStep& largest) const {
    std::vector<int> there;
    for (size_t b = 0; b < cut_.blocks.size(); ++b) {
      const bool touched = std::ranges::any_of(
          all_[b], [&](const BlockAccess& access) { return access.step == largest.step; });
      if (touched || resident_[b]) {
        there.insert(there.end(), cut_.blocks[b].members.begin(), cut_.blocks[b].members.end());
      }
    }
    return CapacityError(
        trace_, limits_.capacity_bytes,
        largest.bytes + limits_.reserved_bytes + 2 * SlotBytes(cut_), limits_.reserved_bytes,
        absl::StrCat(
            steps() == 0 ? "" : absl::StrCat(" for ", StepName(trace_, largest.step)),
            kind_ == PlannerKind::kGeeps ? ", twice what it touches for GeePS's buffer" : ""),
        std::move(there));
  }

  const PlannerKind kind_;
  const AccessTrace& trace_;
  const PagingCosts& costs_;
  const PagingLimits& limits_;
  const size_t room_;
  const TraceBlocks& cut_;
  const std::vector<std::vector<BlockTouch>> touches_;  // by step of the trace
  std::vector<bool> on_host_;                           // by step of the trace
  std::vector<int> order_;                              // by position: step of the trace
  LayoutInput input_;
  std::vector<std::vector<BlockAccess>> all_;  // by block
  std::vector<int> persistent_;                // blocks of the device arena
  std::vector<bool> resident_;                 // by block: without a choice
  struct {
    absl::StatusOr<PagingPlan> plan;      // an error if no choice's pages have a place
    std::vector<bool> resident, on_host;  // empty: none was tried
    LayoutPolicy policy;
  } best_;  // so far, with what it was made of
};

}  // namespace

LargestStep FindLargestStep(const AccessTrace& trace, const std::vector<Home>* homes,
                            PlannerKind planner) {
  const absl::StatusOr<TraceBlocks> cut = CutIntoBlocks(trace);
  GYRE_CHECK(cut.ok());
  LargestStep largest = PagingPlanner(trace, {}, {.homes = homes}, *cut, planner).Largest(planner);
  largest.bytes += 2 * SlotBytes(*cut);
  return largest;
}

int PagingPlan::HostStepAt(int at) const {
  const auto found = std::ranges::lower_bound(host_steps, at, {}, &HostStep::position);
  const bool is_there = found != host_steps.end() && found->position == at;
  return is_there ? static_cast<int>(found - host_steps.begin()) : -1;
}

std::vector<int> HostStepsOf(const PagingPlan& plan) {
  std::vector<int> steps;
  for (const auto& [position, blocks] : plan.host_steps) steps.push_back(plan.order[position]);
  return steps;
}

size_t HostBytes(const AccessTrace& trace, const PagingPlan& plan) {
  size_t bytes = 0;
  for (const int step : HostStepsOf(plan)) bytes += trace.steps[step].host_bytes;
  return bytes;
}

absl::StatusOr<PagingPlan> PlanPaging(const AccessTrace& trace, const PagingCosts& costs,
                                      const PagingLimits& limits, PlannerKind planner) {
  ASSIGN_OR_RETURN(const TraceBlocks cut, CutIntoBlocks(trace));
  return PagingPlanner(trace, costs, limits, cut, planner).Plan();
}

}  // namespace gyre
