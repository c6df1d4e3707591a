#include "engine/training/run/fed_run.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/weights.h"
#include "engine/training/trainable_from.h"

namespace gyre {
namespace {

// What is of data that Gyre reads.
absl::Status CheckFed(const Parsed<TrainerConfig>& trainer) {
  const TrainerConfig& config = *trainer.message;
  const DataConfig& data = config.data();
  const struct {
    bool given;
    const google::protobuf::Message& at;
    const char *field, *why;
  } refusals[] = {
      {data.has_augmentation(), data, "augmentation",
       "is of data that Gyre reads, and the program feeds the batches; leave it out"},
      {data.class_weight() == DataConfig::AUTO, data, "class_weight",
       "counts data that Gyre reads, and the program feeds the batches; leave it out"},
      {data.order() == DataConfig::BALANCED, data, "order",
       "BALANCED is of data that Gyre reads, and the program feeds the batches; leave it out"},
      {HasAuto(data), data, "normalization",
       "auto reads the training samples, and the program feeds the batches; write mean and std"},
      {config.has_epochs(), config, "epochs",
       "counts data that Gyre reads, and the program feeds the batches; write steps"},
      {config.players_size() > 0, config, "players",
       "take turns in the train tool alone; leave them out"},
      {config.distributed().sync() != DistributedConfig::ALLREDUCE, config.distributed(), "sync",
       "a program's ranks have no parameter server; leave it out"}};
  for (const auto& [given, at, field, why] : refusals) {
    if (!given) continue;
    return absl::InvalidArgumentError(absl::StrCat(trainer.source->Where(at, field), ": ", why));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FedRun>> FedRun::Open(const Parsed<TrainerConfig>& trainer,
                                                     const Parsed<NetConfig>& net, Device& device,
                                                     const Primitives& primitives,
                                                     ProcessGroup& communication,
                                                     TrainingOptions options) {
  RETURN_IF_ERROR(CheckFed(trainer));
  ASSIGN_OR_RETURN(RunData data, AssumeData(trainer, net));
  for (FedInput& fed : data.feed.inputs) fed.pixel_values.clear();  // arrays may be bytes or reals
  options.quiet = true;
  ASSIGN_OR_RETURN(
      std::unique_ptr<RunPlan> plan,
      RunPlan::Make(trainer, net, std::move(data), device, primitives, communication, options));
  if (options.out.empty() && PhasesOf(*net.message).size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(net.source->file(),
                     ": trainable_from: a run goes on from a checkpoint where more parameters "
                     "train; open it with `out`, a folder for checkpoints"));
  }
  // The program may do more steps than the trainer's text has.
  RETURN_IF_ERROR(plan->PlanPhases(std::numeric_limits<int64_t>::max(), options));
  std::unique_ptr<FedRun> run(
      new FedRun(std::move(plan), std::move(options), device, communication));
  ASSIGN_OR_RETURN(run->stream_, device.NewStream());
  RETURN_IF_ERROR(run->Begin(run->options_));
  return run;
}

absl::StatusOr<const ModelPlan*> FedRun::PlanOf(int64_t step) {
  const int64_t first = plan_->PhaseOf(step);
  if (phase() == first) return &model_->plan();
  return plan_->PlanOf(first);
}

absl::Status FedRun::CreateModel(int64_t first_step) {
  training_step_.reset();
  if (model_) {
    model_.reset();  // first, for there may not be room for both
    RETURN_IF_ERROR(communication_.Unshare());
  }
  RETURN_IF_ERROR(plan_->UsePhase(first_step));
  if (!state_) RETURN_IF_ERROR(plan_->OpenPages());
  ASSIGN_OR_RETURN(model_,
                   Model::Create(std::move(plan_->nets), device_, *stream_, &communication_));
  return absl::OkStatus();
}

absl::Status FedRun::EnterPhase() {
  const int64_t step = state_->step();
  if (!plan_->Begins(step) || phase() == step) return absl::OkStatus();
  RETURN_IF_ERROR(Save());
  broken_ = absl::UnknownError("the nets of a phase are half made");
  RETURN_IF_ERROR(CreateModel(step));
  RETURN_IF_ERROR(state_->FindSaved(model_->plan()));
  RETURN_IF_ERROR(Restore());
  broken_ = absl::OkStatus();
  return absl::OkStatus();
}

FedRun::FedRun(std::unique_ptr<RunPlan> plan, TrainingOptions options, Device& device,
               ProcessGroup& communication)
    : plan_(std::move(plan)),
      options_(std::move(options)),
      device_(device),
      communication_(communication),
      optimizer_(NewOptimizer(plan_->config.optimizer())) {}

absl::Status FedRun::Begin(const TrainingOptions& options) {
  auto state = std::make_unique<RunState>(plan_->config, options, communication_);
  RETURN_IF_ERROR(state->FindStart(model_ ? model_->plan() : plan_->nets,
                                   [this](int64_t step) { return PlanOf(step); }));
  training_step_.reset();  // what it has in flight is of another start
  broken_ = absl::UnknownError("the weights are half read");
  iterations_ = 0;
  metrics_.clear();
  if (const int64_t first = plan_->PhaseOf(state->step()); first != phase()) {
    RETURN_IF_ERROR(CreateModel(first));
  }
  state_ = std::move(state);  // the one before gives its folder up
  RETURN_IF_ERROR(Restore());
  if (!options_.out.empty()) {
    RETURN_IF_ERROR(state_->OpenOutput(/*test_again=*/false, plan_->length.total_steps()));
  }
  broken_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status FedRun::Restore() {
  RETURN_IF_ERROR(state_->Restore(*model_, *stream_));
  ASSIGN_OR_RETURN(training_step_,
                   TrainingStep::Create(*model_, *optimizer_, device_, *stream_, communication_));
  training_step_->SetGroups(state_->skipped_before);
  if (!state_->loss_scale) return absl::OkStatus();
  return training_step_->SetLossScale(*state_->loss_scale);
}

absl::Status FedRun::Ready() const {
  if (broken_.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("load a checkpoint first, because a call has failed: ", broken_.message()));
}

absl::StatusOr<std::optional<std::vector<Metric>>> FedRun::Step(Batch& batch) {
  RETURN_IF_ERROR(Ready());
  if (iterations_ == 0) RETURN_IF_ERROR(EnterPhase());
  const RunShape& shape = train_plan().spec.shape;
  const bool update = iterations_ + 1 == shape.accumulate;
  const auto [first, count] = ShareOf(shape.global, shape.rank, shape.ranks);
  batch.first_position = state_->position() + iterations_ * shape.global + first;
  batch.samples.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) batch.samples[static_cast<size_t>(i)] = i;

  const std::string name = absl::StrCat("step ", state_->step() + 1);
  const auto fail = [&](const absl::Status& status) {
    broken_ = Annotate(status, name);
    return broken_;
  };
  std::optional<double> rate;
  if (update) rate = plan_->length.LearningRate(state_->step(), shape.workers());
  const absl::Status started = training_step_->Start(batch, state_->step(), rate);
  const absl::StatusOr<Tensor> finished = started.ok() ? training_step_->Finish() : started;
  // Bad data are of a rank alone, which does its part of the step, and the others hear of it.
  const bool of_data = absl::IsInvalidArgument(finished.status());
  if (!finished.ok() && !of_data) return fail(finished.status());
  metrics_.resize(static_cast<size_t>(model_->train().metrics().elements()));
  if (finished.ok()) {
    std::ranges::transform(metrics_, std::span(finished->as<double>(), metrics_.size()),
                           metrics_.begin(), std::plus());
  }
  ++iterations_;
  if (!update && communication_.size() == 1) {
    if (!finished.ok()) return fail(finished.status());
    return std::nullopt;
  }
  std::vector<double> sums = update ? metrics_ : std::vector<double>();
  sums.push_back(finished.ok() ? 0 : 1);
  RETURN_IF_ERROR(communication_.Sum("step metrics", sums));
  if (!finished.ok()) return fail(finished.status());
  if (sums.back() > 0) return fail(absl::AbortedError("another rank's batch is bad"));
  if (!update) return std::nullopt;

  iterations_ = 0;
  metrics_.clear();
  state_->Advance();
  if (shape.loss_scale.dynamic()) state_->loss_scale = training_step_->loss_scale();
  std::vector<Metric> metrics = MetricsOf(train_plan().spec);
  AddSums(sums.data(), metrics);
  if (!std::isfinite(TotalLoss(metrics)) && !training_step_->skipped()) {
    return fail(absl::InternalError(absl::StrCat("the loss is not finite; ", kDivergenceAdvice)));
  }
  return metrics;
}

absl::StatusOr<TestResult> FedRun::Test(const Dataset& dataset, int64_t samples) {
  RETURN_IF_ERROR(Ready());
  auto tested = EvaluateTraining(*model_, dataset, device_, *stream_, communication_,
                                 /*progress=*/nullptr, samples);
  const bool shards = train_plan().spec.shape.shard_optimizer;
  if (!tested.ok() && shards && model_->has_averages()) broken_ = Annotate(tested.status(), "test");
  return tested;
}

absl::Status FedRun::Save() {
  RETURN_IF_ERROR(Ready());
  if (options_.out.empty()) {
    return absl::FailedPreconditionError("the run was opened without `out`, a folder to save to");
  }
  if (iterations_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%d of the step's %d batches are done; save after the last", iterations_,
                        train_plan().spec.shape.accumulate));
  }
  if (state_->copied_step() == state_->step()) return absl::OkStatus();
  RETURN_IF_ERROR(state_->Save(*model_, *stream_, /*tell=*/false));
  return state_->FinishSaving();
}

absl::Status FedRun::Load(const std::string& path) {
  TrainingOptions options = options_;
  options.weights.clear();
  options.resume = path.empty() ? "latest" : path;
  if (path.empty() && options_.out.empty()) {
    return absl::FailedPreconditionError("the run was opened without `out`; name a checkpoint");
  }
  return Begin(options);
}

absl::Status FedRun::Export(const std::string& path) {
  RETURN_IF_ERROR(Ready());
  Buffer copy;
  RETURN_IF_ERROR(model_->CopyState(*stream_, copy));
  return communication_.LeaderDoes("writing weights", [&]() -> absl::Status {
    Model::UnpackedState state;
    RETURN_IF_ERROR(model_->UnpackState({copy.data(), copy.bytes()}, state));
    RETURN_IF_ERROR(TakeAverages(
        state.weights.tensors, [&](const std::string& name) -> absl::StatusOr<const Tensor*> {
          const std::vector<NamedTensor>& slots = state.optimizer.tensors;
          const auto slot = std::ranges::find(slots, name, &NamedTensor::name);
          return slot == slots.end() ? nullptr : &slot->tensor;
        }));
    std::map<std::string, std::string> metadata =
        MetadataOf({.path = path,
                    .tensors = TensorFile(),
                    .fit = options_.fit.value_or(Fit()),
                    .texts = {options_.net_text, options_.trainer_text, ""}});
    metadata["format"] = "gyre";
    return absl::EndsWith(path, ".npz") ? WriteNpz(path, state.weights.tensors)
                                        : WriteSafetensors(path, state.weights.tensors, metadata);
  });
}

}  // namespace gyre
