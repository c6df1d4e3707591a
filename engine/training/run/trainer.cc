#include "engine/training/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/timeline.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/metrics/record_metrics.h"

namespace gyre {
namespace {

// Samples of an epoch, or of a run that is shorter, whose faults this rank counts.  Without steps
// together they are its own: at least those of its whole batches.
int64_t CountedSamples(const RunLength& length, const RunShape& shape) {
  if (shape.StepTogether()) return length.epoch_samples();
  return std::max<int64_t>(length.epoch_samples() / shape.global, 1) * shape.local;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Prepare(const Parsed<TrainerConfig>& trainer,
                                                          const Parsed<NetConfig>& net,
                                                          RunData data, Device& device,
                                                          const Primitives& primitives,
                                                          ProcessGroup& communication,
                                                          TrainingOptions options) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<RunPlan> plan,
      RunPlan::Make(trainer, net, std::move(data), device, primitives, communication, options));
  std::unique_ptr<Trainer> run(new Trainer(std::move(plan), device, communication));
  run->state_.emplace(run->plan_->config, options, communication);
  RunPlan& planned = *run->plan_;
  const auto phase_of = [&](int64_t step) {
    // A run that has ended begins no phase.
    const bool ended = planned.config.has_steps() && step >= planned.config.steps();
    return planned.PhaseOf(ended ? step - 1 : step);
  };
  RETURN_IF_ERROR(run->state_->FindStart(
      planned.nets, [&](int64_t step) { return planned.PlanOf(phase_of(step)); }));
  RETURN_IF_ERROR(planned.UsePhase(phase_of(run->state_->step())));
  RETURN_IF_ERROR(planned.OpenPages());
  // Without the data nobody knows how long an epoch is.
  if (planned.data.assumed && planned.config.has_epochs()) return run;
  RETURN_IF_ERROR(planned.length.GoOnFrom(run->state_->step(), run->state_->position()));
  // Of another length with another batch.
  RETURN_IF_ERROR(planned.PlanPhases(planned.length.total_steps(), options));
  return run;
}

Trainer::Trainer(std::unique_ptr<RunPlan> plan, Device& device, ProcessGroup& communication)
    : plan_(std::move(plan)),
      device_(device),
      communication_(communication),
      optimizer_(NewOptimizer(plan_->config.optimizer())) {}

// An error is every ticket's from then on, so this ends.
Trainer::~Trainer() {
  for (const Report& report : reports_) communication_.Wait(report.ticket).IgnoreError();
}

absl::StatusOr<std::string> Trainer::Run() {
  RETURN_IF_ERROR(CreateModel());
  const int64_t most = plan_->config.data().max_bad_samples();
  bad_ = BadSamples(most, CountedSamples(plan_->length, options().shape),
                    plan_->length.EpochOf(state_->position()), state_->bad_samples);
  bad_of_tests_ = BadSamples(most, options().test_samples);
  RETURN_IF_ERROR(state_->OpenOutput(/*test_again=*/TestIsDue(), plan_->length.total_steps()));
  state_->Say(absl::StrCat("output in ", state_->options().out));
  if (!plan_->batch_text.empty()) state_->Say(Wrapped("", plan_->batch_text));
  for (const std::string& warning : plan_->warnings) state_->Warn(warning);
  for (const std::string& note : LeftOut(plan_->config, plan_->data))
    state_->Say(Wrapped("", note));
  if (plan_->data.test && model_->has_averages()) {
    state_->Say(absl::StrFormat("tests are by averages of the weights: ema { decay: %g }",
                                plan_->config.optimizer().ema().decay()));
  }
  const absl::Status status = Loop();
  if (state_->log() != nullptr) state_->log()->EndProgress();
  if (!status.ok()) {
    if (agreed_ && training_step_) training_step_->Abandon().IgnoreError();
    // Whatever happened: what is being written is worth having.  All ranks wait for it, if all are
    // here; else each has as long for its part as the failing rank gives it.
    const absl::Status saved = agreed_ ? state_->FinishSaving() : state_->AwaitSaving();
    if (!saved.ok() && communication_.rank() > 0) {  // of its part; it has no other voice
      return absl::Status(status.code(),
                          absl::StrCat(status.message(), "; ", std::string(saved.message())));
    }
    if (!saved.ok()) state_->Warn(std::string(saved.message()));
    if (state_->saved_step() < 0 || absl::IsCancelled(status)) return status;
    return absl::Status(status.code(), absl::StrFormat("%s; the checkpoint of step %d stands",
                                                       status.message(), state_->saved_step()));
  }
  RETURN_IF_ERROR(ReportPaging());
  ReportWaits();
  RETURN_IF_ERROR(state_->Flush());
  RETURN_IF_ERROR(communication_.Barrier());  // nobody leaves while another may still fail
  return model_->Sha256OfWeights(*stream_);
}

absl::Status Trainer::Loop() {
  if (works()) {
    ASSIGN_OR_RETURN(loader_, NewLoader(*plan_->data.train, /*train=*/true, options().shape,
                                        options().feed, state_->position(), kBatchesHeld, device_));
  }
  // The run before may have ended between the checkpoint and the test after it.
  if (state_->step() > 0 && TestIsDue()) RETURN_IF_ERROR(Test());
  while (state_->step() < plan_->length.total_steps() && state_->step() != stop_at_) {
    const bool logs_norms = options().shape.LogsNorms(state_->step() + 1);
    if (logs_norms) RETURN_IF_ERROR(RememberValues());
    RETURN_IF_ERROR(RunStep());
    if (logs_norms) RETURN_IF_ERROR(LogNorms());
    RETURN_IF_ERROR(state_->CheckSaving());
    // First, so that what the test finds wrong costs no work.
    if (SaveIsDue()) RETURN_IF_ERROR(Save());
    // A run that stops has no time for it; the one that goes on makes up for it.
    const bool stops = state_->step() == stop_at_ && state_->step() < plan_->length.total_steps();
    if (TestIsDue() && !stops) RETURN_IF_ERROR(Test());
    const bool goes_on = !stops && state_->step() < plan_->length.total_steps();
    if (goes_on && plan_->Begins(state_->step())) RETURN_IF_ERROR(EnterPhase());
  }
  RETURN_IF_ERROR(FinishAll());
  const bool stopped = state_->step() < plan_->length.total_steps();
  if (stopped) RETURN_IF_ERROR(Save());
  RETURN_IF_ERROR(training_step_->Stop());
  RETURN_IF_ERROR(state_->FinishSaving());
  RETURN_IF_ERROR(BadStatus());
  if (stopped) {
    return absl::CancelledError(
        absl::StrFormat("stopped after step %d; go on with --resume=latest --out=%s",
                        state_->step(), state_->options().out));
  }
  return absl::OkStatus();
}

absl::Status Trainer::RunStep() {
  RETURN_IF_ERROR(TakeTurn());
  const auto began = std::chrono::steady_clock::now();
  const int64_t batches = options().shape.accumulate, step = state_->step();
  for (int64_t b = 0; b < batches; ++b) {
    InFlight iteration{.step = step + 1};
    RETURN_IF_ERROR(TakeBatch(b, iteration));
    if (!bad_.status().ok()) return EndByBadSamples(/*step_has_begun=*/b > 0);
    if (b + 1 == batches) {
      iteration.learning_rate = LearningRate(step);
      state_->Advance();
    }
    RETURN_IF_ERROR(StartIteration(std::move(iteration)));
    // The one before it, which the device has been busy with meanwhile.
    if (in_flight_.size() > 1) RETURN_IF_ERROR(FinishIteration());
  }
  stepped_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return absl::OkStatus();
}

absl::Status Trainer::TakeBatch(int64_t number, InFlight& iteration) {
  if (works()) {
    const TimelineSpan span(TimelineKind::kInput, "the next batch");
    const double waited_before = loader_->times().next_waited;
    iteration.batch = loader_->Next();
    iteration.waited = loader_->times().next_waited - waited_before;
  }
  // By epoch, as one batch may be longer than several.
  const int64_t global = options().shape.global;
  const int64_t first = state_->position() + number * global;
  const int64_t epoch = plan_->length.EpochOf(first);
  std::vector<double> bad(plan_->length.EpochOf(first + global - 1) - epoch + 1);
  std::vector<std::string> faults;
  for (const Batch::FaultySample& fault : iteration.batch.faults) {
    faults.push_back(fault.message);
    ++bad[plan_->length.EpochOf(iteration.batch.first_position + fault.sample) - epoch];
  }
  faults = bad_.New(faults);
  if (options().shape.StepTogether()) RETURN_IF_ERROR(communication_.Sum("bad samples", bad));
  for (size_t i = 0; i < bad.size(); ++i) {
    bad_.Count(epoch + static_cast<int64_t>(i), static_cast<int64_t>(bad[i]));
  }
  iteration.bad_samples = bad_.count();
  TellOf(faults, /*ends=*/!bad_.status().ok());
  return absl::OkStatus();
}

// The state after the last step is sound.  A step that has begun may have changed what is carried.
absl::Status Trainer::EndByBadSamples(bool step_has_begun) {
  if (!options().shape.StepTogether()) return FirstError(BadStatus());
  if (step_has_begun) {
    RETURN_IF_ERROR(FinishStarted());
    agreed_ = true;
    return BadStatus();
  }
  stop_at_ = state_->step();
  return absl::OkStatus();
}

absl::Status Trainer::BadStatus() const {
  return Annotate(bad_.status(), absl::StrCat("step ", state_->step() + 1, ": training data"));
}

absl::Status Trainer::StartIteration(InFlight iteration) {
  const int64_t step = iteration.step - 1;
  const std::optional<double> learning_rate = iteration.learning_rate;
  in_flight_.push_back(std::move(iteration));
  const Batch& batch = in_flight_.back().batch;
  // The first may set libraries up.
  const bool timed = learning_rate && ++updates_ == 2 && model_->plan().pages() &&
                     model_->turns() == 1 && communication_.size() == 1 &&
                     options().pages.planner == PlannerKind::kAuto;
  absl::StatusOr<std::vector<double>> seconds = std::vector<double>();
  if (timed) {
    seconds = training_step_->StartTimed(batch, step, *learning_rate);
  } else {
    const absl::Status started = training_step_->Start(batch, step, learning_rate);
    if (!started.ok()) seconds = started;
    ReportReplay();
  }
  if (!seconds.ok()) {
    in_flight_.pop_back();
    return FirstError(Annotate(seconds.status(), absl::StrCat("step ", step + 1)));
  }
  return timed ? PlanPagesAnew(*seconds) : absl::OkStatus();
}

absl::Status Trainer::PlanPagesAnew(std::span<const double> step_seconds) {
  RETURN_IF_ERROR(FinishAll());
  const LossScaleState loss_scale = training_step_->loss_scale();
  RETURN_IF_ERROR(state_->FinishSaving());  // its thread reads the nets that are replaced
  ASSIGN_OR_RETURN(const bool faster, model_->PlanPagesAnew(*stream_, step_seconds));
  paged_.timed = true;
  const ExpectedIteration paging = ExpectIteration(model_->plan());
  state_->Say(Wrapped(
      "paging: ",
      absl::StrFormat("an iteration is expected to take %.1f ms, of which %.1f wait for copies%s",
                      paging.seconds * 1000, paging.stalled_seconds * 1000,
                      faster ? ", as planned anew by measured times" : "")));
  if (!faster) return absl::OkStatus();
  return CreateStep(loss_scale);
}

// What the first iterations set up, measure and plan anew, and what waits for the host between two,
// counts in none.
void Trainer::Time() {
  constexpr int64_t kSettingUp = 4;
  const Pager* const pager = model_->train_pager();
  if (pager == nullptr || model_->turns() > 1) return;
  const auto now = std::chrono::steady_clock::now();
  const Pager* const other = model_->turn(0).first().pager.get();
  const double stalled = pager->stalled_seconds() + (other == pager ? 0 : other->stalled_seconds());
  if (since_) {
    ++paged_.count;
    paged_.seconds += std::chrono::duration<double>(now - *since_).count();
    paged_.stalled_seconds += stalled - stalled_since_;
  }
  since_.reset();
  if (++finished_ >= kSettingUp && training_step_->in_flight() > 0) since_ = now;
  stalled_since_ = stalled;
}

absl::Status Trainer::FinishIteration() {
  const InFlight iteration = std::move(in_flight_.front());
  in_flight_.pop_front();
  // First: an error of this step must not hide that one.
  RETURN_IF_ERROR(CollectReports(reports_left_));
  const absl::Status finished = FinishBatch(iteration);
  agreed_ = training_step_->diverged();
  if (!finished.ok()) return Annotate(finished, absl::StrCat("step ", iteration.step));
  if (!iteration.learning_rate) return absl::OkStatus();
  if (options().shape.loss_scale.dynamic()) {
    state_->loss_scale = training_step_->loss_scale();
  }
  SubmitReport(iteration);
  return absl::OkStatus();
}

absl::Status Trainer::FinishBatch(const InFlight& iteration) {
  const absl::StatusOr<Tensor> metrics = training_step_->Finish();
  Time();
  RETURN_IF_ERROR(metrics.status());
  if (!works()) return absl::OkStatus();
  loader_->Release(iteration.batch);
  waited_ += iteration.waited;
  metrics_.resize(static_cast<size_t>(metrics->elements()));
  std::ranges::transform(metrics_, std::span(metrics->as<double>(), metrics_.size()),
                         metrics_.begin(), std::plus());
  return absl::OkStatus();
}

absl::Status Trainer::FinishStarted() {
  while (!in_flight_.empty()) RETURN_IF_ERROR(FinishIteration());
  return CollectReports(/*left=*/0);
}

absl::Status Trainer::FinishAll() {
  RETURN_IF_ERROR(FinishStarted());
  return training_step_->Settle();
}

// What went wrong first, a step having failed to start: an earlier one may have failed as well, and
// those that have not get their lines.
absl::Status Trainer::FirstError(const absl::Status& status) {
  absl::Status earlier;
  if (communication_.size() == 1) {
    earlier = FinishAll();
  } else {
    // The others may be in a sum of the step that fails here alone: nothing more can be agreed on.
    earlier = CollectReports(/*left=*/0);
    while (earlier.ok() && training_step_->in_flight() > 0) {
      earlier = Annotate(training_step_->Finish().status(),
                         absl::StrCat("step ", in_flight_.front().step));
      in_flight_.pop_front();
    }
    agreed_ = false;
  }
  return earlier.ok() ? status : earlier;
}

void Trainer::SubmitReport(const InFlight& last) {
  Report& report = reports_.emplace_back();
  report.metrics = MetricsOf(NetsOf(last.step - 1).net().plan().spec);
  report.sums = std::exchange(metrics_, {});
  report.sums.resize(2 * report.metrics.size());  // zeros, of a rank that serves
  const TrainingOptions& asked = state_->options();
  report.sums.push_back(asked.stop != nullptr && asked.stop->load() ? 1 : 0);
  report.sums.push_back(asked.save != nullptr && asked.save->exchange(false) ? 1 : 0);
  report.sums.push_back(training_step_->skipped() ? 1 : 0);
  report.waited = std::exchange(waited_, 0);
  state_->AppendTo(report.sums);
  report.learning_rate = *last.learning_rate;
  report.step = last.step;
  report.bad_samples = last.bad_samples;
  report.loss_scale = state_->loss_scale;
  report.ticket = communication_.Submit(
      "step metrics",
      {report.sums.data(), Shape({static_cast<int64_t>(report.sums.size())}), DType::kF64}, nullptr,
      MemoryKind::kPinnedHost, kMostUrgent);
}

// Those that all ranks have taken ahead of the next report, whatever has come: what they tell there
// has the same length.
absl::Status Trainer::CollectReports(size_t left) {
  while (reports_.size() > left) {
    RETURN_IF_ERROR(communication_.Wait(reports_.front().ticket).status());
    Report report = std::move(reports_.front());
    reports_.pop_front();
    RETURN_IF_ERROR(Take(std::move(report)));
  }
  return absl::OkStatus();
}

absl::Status Trainer::Take(Report report) {
  AddSums(report.sums.data(), report.metrics);
  const std::span asked = std::span(report.sums).subspan(2 * report.metrics.size());
  // When every rank has taken it: one that trains by one batch a step does so with that step under
  // way; others, and where all reports are taken (FinishAll), know earlier.
  const int64_t known_at = report.step + static_cast<int64_t>(reports_left_) + 2;
  if (asked[0] > 0 && stop_at_ < 0) stop_at_ = known_at;
  if (asked[1] > 0 && save_at_ < 0) save_at_ = known_at;
  const bool skipped = asked[2] > 0;
  state_->Take(asked.subspan(3));
  if (!std::isfinite(TotalLoss(report.metrics)) && !skipped) {
    agreed_ = true;
    return absl::InternalError(
        absl::StrFormat("step %d: the loss is not finite; %s", report.step, kDivergenceAdvice));
  }
  MetricsLog* const log = state_->log();
  if (log == nullptr) return absl::OkStatus();
  NamedNumbers more = {{"data_wait_seconds", std::round(report.waited * 1e6) / 1e6}};
  if (plan_->config.data().max_bad_samples() > 0) {
    more.emplace_back("bad_samples", static_cast<double>(report.bad_samples));
  }
  return log->Step(report.step, plan_->length.EpochsAt(report.step), report.metrics,
                   report.learning_rate, report.loss_scale, more);
}

absl::Status Trainer::Test() {
  if (!plan_->data.test) return absl::OkStatus();
  RETURN_IF_ERROR(FinishAll());
  RETURN_IF_ERROR(state_->SettleShards());  // what the test finds wrong costs no work
  MetricsLog* const log = state_->log();
  std::function<void(int64_t)> progress;
  const int64_t samples = options().test_samples;
  if (log) progress = [log, samples](int64_t done) { log->TestProgress(done, samples); };
  const absl::StatusOr<TestResult> tested =
      EvaluateTraining(*model_, *plan_->data.test, device_, *stream_, communication_, progress);
  if (!tested.ok()) {
    const absl::Status saved = communication_.size() == 1 ? Save() : absl::OkStatus();
    if (!saved.ok()) state_->Warn(std::string(saved.message()));
    return tested.status();  // others do not know of it
  }
  const std::vector<std::string> faults = bad_of_tests_.New(tested->faults);
  bad_of_tests_.Count(/*epoch=*/state_->step(), tested->bad_samples);
  TellOf(faults, /*ends=*/!bad_of_tests_.status().ok());
  if (!bad_of_tests_.status().ok()) {  // on all ranks
    RETURN_IF_ERROR(Save());
    RETURN_IF_ERROR(training_step_->Stop());
    RETURN_IF_ERROR(state_->FinishSaving());
    return Annotate(bad_of_tests_.status(), "test data");
  }
  const std::vector<Metric>* const metrics = &tested->metrics;
  // Training tells by its own loss whether it can go on.
  if (const absl::Status status = CheckFiniteMetrics(*metrics); !status.ok()) {
    state_->Warn(
        absl::StrFormat("step %d: test %s; training goes on", state_->step(), status.message()));
  }
  return log ? log->Test(state_->step(), *metrics) : absl::OkStatus();
}

absl::Status Trainer::Save() {
  RETURN_IF_ERROR(FinishAll());
  const bool asked = std::exchange(save_at_, -1) >= 0;
  const int64_t step = state_->step();
  if (step == state_->copied_step() || step == state_->start().step) return absl::OkStatus();
  state_->bad_samples = bad_.CountOf(plan_->length.EpochOf(state_->position()));
  return state_->Save(*model_, *stream_, /*tell=*/asked);
}

}  // namespace gyre
