// The phases of a run: what is planned, agreed on and said of each.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/count_text.h"
#include "engine/training/plan/planning.h"
#include "engine/training/run/run_plan.h"
#include "memory/report/paging_text.h"

namespace gyre {
namespace {

// A longer list tells people no more.
constexpr size_t kNamesShown = 8;

std::string Listed(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kNamesShown);
  names.resize(names.size() - more);
  const std::string text = absl::StrJoin(names, ", ");
  return more == 0 ? text : absl::StrCat(text, " and ", more, " more");
}

// In files, once each, of the parameters for which `is` holds.
template <typename Is>
std::vector<std::string> NamesOf(const ParameterSet& parameters, const Is& is) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters.all()) {
    const std::string name = CanonicalName(parameter, "");
    if (is(parameter.spec) && (names.empty() || names.back() != name)) names.push_back(name);
  }
  return names;
}

}  // namespace

int64_t RunPlan::PhaseOf(int64_t step) const {
  return *std::prev(std::ranges::upper_bound(phases_, step));
}

absl::Status RunPlan::PlanPhases(int64_t end, TrainingOptions& options) {
  for (const int64_t first : phases_) {
    if (first >= end || first == nets.options.shape.first_step()) continue;
    if (others_.contains(first)) continue;
    ASSIGN_OR_RETURN(const ModelPlan* const plan, PlanOf(first));
    RETURN_IF_ERROR(AgreeOn(*plan, options));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelPlan> RunPlan::PlanPhase(int64_t first_step) const {
  const Planning planning{net_, data, device_, primitives_, communication_, pages_, first_step};
  absl::StatusOr<ModelPlan> plan = planning.Plan(config);
  const absl::Status checked = plan.ok() ? CheckServer(*plan) : plan.status();
  if (checked.ok()) return plan;
  return Annotate(checked, absl::StrFormat("from step %d on (trainable_from)", first_step));
}

absl::StatusOr<const ModelPlan*> RunPlan::PlanOf(int64_t first_step) {
  if (nets.train != nullptr && nets.options.shape.first_step() == first_step) return &nets;
  auto found = others_.find(first_step);
  if (found == others_.end()) {
    ASSIGN_OR_RETURN(ModelPlan plan, PlanPhase(first_step));
    found = others_.emplace(first_step, std::move(plan)).first;
  }
  return &found->second;
}

absl::Status RunPlan::UsePhase(int64_t first_step) {
  ASSIGN_OR_RETURN(const ModelPlan* const plan, PlanOf(first_step));
  if (plan == &nets) return absl::OkStatus();
  ModelPlan used = std::move(others_.extract(first_step).mapped());
  if (nets.train != nullptr) others_.emplace(nets.options.shape.first_step(), std::move(nets));
  nets = std::move(used);
  return absl::OkStatus();
}

absl::Status RunPlan::OpenPages() {
  for (auto later = others_.upper_bound(nets.options.shape.first_step()); later != others_.end();
       ++later) {
    RETURN_IF_ERROR(later->second.OpenPages());
    later->second.page_file.reset();
  }
  return nets.OpenPages();
}

absl::Status RunPlan::AgreeOn(const ModelPlan& nets_of_phase, TrainingOptions& options) const {
  const int64_t first = nets_of_phase.options.shape.first_step();
  const std::string of = first == 0 ? "" : absl::StrCat(" from step ", first);
  const std::string fingerprint = nets_of_phase.Fingerprint();
  RETURN_IF_ERROR(
      communication_.CheckEqual(absl::StrCat("the weights' layouts and buckets", of), fingerprint));
  options.choices["layouts" + of] = Sha256(fingerprint).substr(0, 16);
  if (nets_of_phase.options.shape.page_activations == DType::kF32) return absl::OkStatus();
  std::string rounding;
  for (const NetPlan* const net : {nets_of_phase.train.get(), nets_of_phase.accumulating.get()}) {
    if (net != nullptr && net->paging) rounding += RoundingText(*net->paging);
  }
  options.choices["rounded pages" + of] =
      rounding.empty() ? "none" : Sha256(rounding).substr(0, 16);
  return absl::OkStatus();
}

std::string RunPlan::DescribePhase() const {
  const int64_t first = nets.options.shape.first_step();
  const auto begins = [first](const StateSpec& spec) {
    return spec.trained() && spec.trainable_from == first;
  };
  return absl::StrFormat("step %d: %s train from now on: %d of %d parameters", first,
                         Listed(NamesOf(nets.parameters, begins)), TrainedElements(nets),
                         Total(LayerRows(nets)).parameters);
}

// A line about what waits, or "".
std::string RunPlan::DescribeFrozen() const {
  const auto next = others_.upper_bound(nets.options.shape.first_step());
  if (next == others_.end()) return "";
  return absl::StrFormat("%d parameters train until step %d\n", TrainedElements(nets), next->first);
}

// Likewise, about whose turns steps are.
std::string RunPlan::DescribePlayers() const {
  std::vector<std::string> players;
  for (const PlayerConfig& player : config.players()) {
    players.push_back(absl::StrCat(player.name(), ", ", Counted(player.steps(), "step")));
  }
  return players.empty() ? "" : absl::StrCat("in turn: ", absl::StrJoin(players, "; "), "\n");
}

void RunPlan::WarnOfLatePhases() {
  const int64_t steps = length.total_steps();
  const auto is_late = [steps](const StateSpec& spec) { return spec.trainable_from >= steps; };
  const std::vector<std::string> late = NamesOf(nets.parameters, is_late);
  if (late.empty()) return;
  warnings.push_back(
      absl::StrFormat("%s: %s never train, because trainable_from is not below the run's %d steps",
                      net_.source->file(), Listed(late), steps));
}

}  // namespace gyre
