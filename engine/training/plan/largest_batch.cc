#include "engine/training/plan/largest_batch.h"

#include <algorithm>

namespace gyre {
namespace {

// The largest of least, ..., most that fits, or least - 1.  Doubles what fits, then bisects.
// Precondition: every value below one that fits fits too.
int64_t LargestThat(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t good = least - 1, bad = most + 1;
  for (int64_t next = least; good + 1 < bad;) {
    (fits(next) ? good : bad) = next;
    const int64_t doubled = std::max(2 * good, least);
    next = bad == most + 1 ? std::min(doubled, most) : good + (bad - good) / 2;
  }
  return good;
}

}  // namespace

absl::StatusOr<LargestBatch> FindLargestBatch(
    const Parsed<NetConfig>& net, const std::function<ModelOptions(int64_t batch)>& options,
    int64_t least, int64_t most, const AskAll& ask_all) {
  absl::Status wrong;
  const auto fits_here = [&](int64_t batch, size_t (*capacity)(const ModelPlan&)) {
    ModelOptions of = options(batch);
    const size_t bytes = of.capacity_bytes;
    of.capacity_bytes = ~size_t{0};  // so that nothing is paged yet
    const absl::StatusOr<ModelPlan> plan = PlanModel(net, of);
    // What else is wrong with a batch the run itself says.
    const bool too_large = absl::IsResourceExhausted(plan.status());
    if (!plan.ok() && !too_large && batch == least) wrong = plan.status();
    return plan.ok() ? capacity(*plan) <= bytes : !too_large;
  };
  absl::Status ranks;
  const auto fits = [&](int64_t batch, size_t (*capacity)(const ModelPlan&)) {
    const bool here = fits_here(batch, capacity);
    if (!ranks.ok()) return here;
    const absl::StatusOr<bool> all = ask_all(here);
    ranks = all.status();
    return all.value_or(here);
  };
  LargestBatch largest;
  const auto find = [&](int64_t from, size_t (*capacity)(const ModelPlan&)) {
    return LargestThat(from, most, [&](int64_t batch) { return fits(batch, capacity); });
  };
  largest.resident = find(least, [](const ModelPlan& plan) { return plan.resident_bytes; });
  RETURN_IF_ERROR(ranks);
  if (!wrong.ok()) return wrong;
  const bool pages = options(least).pages.planner != PlannerKind::kNone;
  largest.paged =
      pages ? std::max(largest.resident, find(std::max(least, largest.resident), LeastCapacity))
            : largest.resident;
  RETURN_IF_ERROR(ranks);
  return largest;
}

}  // namespace gyre
