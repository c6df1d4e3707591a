// What a run tells people beside its metrics.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/run/trainer.h"

namespace gyre {

void Trainer::ReportReplay() {
  if (reported_) return;
  const size_t nodes = training_step_->graph_nodes();
  const absl::Status& refusal = training_step_->refusal();
  reported_ = nodes > 0 || !refusal.ok();
  if (nodes > 0) state_->Say(absl::StrFormat("steps are replayed: graphs of %d nodes", nodes));
  if (!refusal.ok()) {
    state_->Warn(
        absl::StrCat("steps are launched piece by piece, which is slower, because "
                     "the device could not capture them: ",
                     std::string(refusal.message())));
  }
}

absl::Status Trainer::ReportPaging() {
  if (paged_.count == 0) return absl::OkStatus();
  const ExpectedIteration expected = ExpectIteration(model_->plan());
  const bool stalls = device_.kind() != DeviceKind::kCuda;
  paged_.hosted_seconds = model_->train_pager()->hosted_seconds();
  state_->Say(Wrapped("", DescribeRun(expected, paged_, stalls)));
  MetricsLog* const log = state_->log();
  if (log == nullptr) return absl::OkStatus();
  const auto count = static_cast<double>(paged_.count);
  NamedNumbers numbers = {{"fetched_bytes", expected.fetched_bytes},
                          {"written_bytes", expected.written_bytes},
                          {"iteration_seconds", paged_.seconds / count}};
  if (paged_.timed) {
    numbers.emplace_back("expected_iteration_seconds", expected.seconds);
    numbers.emplace_back("expected_stalled_seconds", expected.stalled_seconds);
  }
  if (expected.host_steps > 0) numbers.emplace_back("host_seconds", paged_.hosted_seconds);
  if (stalls) numbers.emplace_back("stalled_seconds", paged_.stalled_seconds / count);
  return log->Numbers(state_->step(), numbers);
}

void Trainer::ReportWaits() {
  if (loader_ == nullptr || !DecodesSamples(plan_->data.train.get())) return;
  constexpr double kWorthAdvice = 0.1;
  const LoaderTimes times = loader_->times();
  const int workers = options().feed.workers;
  const double busy =
      times.workers_worked / std::max(times.workers_worked + times.workers_waited, 1e-9);
  const bool slow = times.next_waited > kWorthAdvice * stepped_seconds_;
  state_->Say(Wrapped(
      "data: ",
      absl::StrFormat("steps waited %.1f of %.1f s for samples; %s busy %.0f %% of the "
                      "time%s",
                      times.next_waited, stepped_seconds_,
                      workers == 1 ? "1 worker was" : absl::StrCat(workers, " workers were"),
                      100 * busy, slow ? "; raise --data_threads if cores are free" : "")));
}

void Trainer::TellOf(const std::vector<std::string>& faults, bool ends) const {
  for (const std::string& fault : faults) {
    const std::string text =
        ends ? fault : absl::StrCat(fault, "; the sample keeps its place with weight 0");
    if (communication_.rank() == 0) {
      if (!ends) state_->Warn(text);  // else its error has it
    } else {                          // the leader does not know of it
      std::fprintf(stderr, "warning: rank %d: %s\n", communication_.rank(), text.c_str());
    }
  }
}

}  // namespace gyre
