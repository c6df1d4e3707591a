#include "engine/training/trainer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/learning_rate_schedule.h"

namespace gyre {
namespace {

int64_t StepsOf(const TrainerConfig& config, int64_t samples) {
  if (config.has_steps()) return config.steps();
  const double steps = std::ceil(config.epochs() * static_cast<double>(samples) /
                                 static_cast<double>(config.batch()));
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingRun>> TrainingRun::Prepare(
    const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net, Device& device,
    const Primitives& primitives, CommunicationThread& communication, TrainingOptions options) {
  std::unique_ptr<TrainingRun> run(
      new TrainingRun(trainer, device, communication, std::move(options)));
  const TrainerConfig& config = *trainer.message;
  if (config.batch() < communication.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: batch %d is smaller than the %d ranks; each rank needs a sample: raise batch or start "
        "fewer ranks",
        trainer.source->Where(config, "batch"), config.batch(), communication.size()));
  }
  RETURN_IF_ERROR(run->OpenData(net));
  run->optimizer_ = NewOptimizer(config.optimizer());
  const int64_t samples = run->train_data_->size();
  run->total_steps_ = StepsOf(config, samples);
  const int64_t epoch = std::max<int64_t>(1, samples / config.batch());
  run->test_every_ = config.has_evaluate_every() ? config.evaluate_every() : epoch;
  run->save_every_ = config.has_checkpoint_every() ? config.checkpoint_every() : epoch;

  const int64_t test_samples = run->test_data_ ? run->test_data_->size() : 0;
  const int64_t test_batch = config.has_test_batch() ? config.test_batch() : config.batch();
  ASSIGN_OR_RETURN(
      run->plan_,
      PlanModel(net,
                {.compute = config.precision() == TrainerConfig::F64 ? DType::kF64 : DType::kF32,
                 .seed = config.seed(),
                 .batch = config.batch(),
                 .test_batch = std::min(test_batch, test_samples),
                 .test_samples = test_samples,
                 .rank = communication.rank(),
                 .ranks = communication.size(),
                 .slots = run->optimizer_->slot_names(),
                 .bucket_bytes = static_cast<size_t>(config.distributed().bucket_bytes()),
                 .capacity_bytes = device.capacity_bytes(),
                 .primitives = &primitives}));
  RETURN_IF_ERROR(communication.CheckEqual(
      "the plan (files, overrides, data, layouts, threads)",
      absl::StrCat(run->plan_->Fingerprint(), config.DebugString(), net.message->DebugString(),
                   samples, " ", test_samples, " ", run->options_.choices["threads"])));
  return run;
}

absl::Status TrainingRun::OpenData(const Parsed<NetConfig>& net) {
  const DataConfig& data = config_.data();
  const std::string& file = trainer_.source->file();
  ASSIGN_OR_RETURN(train_data_, OpenDataset(data.train(), data.normalization(), file));
  ASSIGN_OR_RETURN(inputs_, MapInputs(net, data, *train_data_));
  if (!data.has_test()) return absl::OkStatus();
  ASSIGN_OR_RETURN(test_data_, OpenDataset(data.test(), data.normalization(), file));
  return MapInputs(net, data, *test_data_).status();
}

std::string TrainingRun::DescribePlan() const {
  std::string text = Describe(*plan_->train, plan_->parameters);
  size_t gradients = 0;
  for (const GradientBucket& bucket : plan_->train->order.buckets) gradients += bucket.bytes;
  absl::StrAppendFormat(
      &text,
      "%d steps of %d samples over %d ranks (%d on this one)\n"
      "%d gradient buckets, %d bytes; each rank sends %.0f bytes a step (%s allreduce)\n"
      "device memory: %d bytes for all nets, and %d for gradients\n",
      total_steps_, config_.batch(), communication_.size(), plan_->train->spec.local_batch,
      plan_->train->order.buckets.size(), gradients,
      AllreduceBytesSent(config_.distributed().allreduce(), static_cast<double>(gradients),
                         communication_.size()),
      config_.distributed().allreduce(), plan_->device_bytes(), plan_->communication_bytes());
  return text;
}

absl::StatusOr<std::string> TrainingRun::Run() {
  RETURN_IF_ERROR(CreateModel());
  RETURN_IF_ERROR(Restore());
  if (leader()) {
    ASSIGN_OR_RETURN(log_, RunLog::Open(options_.out, step_, total_steps_, config_.batch()));
  }
  RETURN_IF_ERROR(Loop());
  RETURN_IF_ERROR(communication_.Barrier());  // nobody leaves while another may still fail
  return model_->Sha256OfWeights(*stream_);
}

absl::Status TrainingRun::CreateModel() {
  if (leader()) {
    checkpoints_.emplace(absl::StrCat(options_.out, "/checkpoints"),
                         static_cast<int>(config_.keep_checkpoints()));
    RETURN_IF_ERROR(checkpoints_->ProbeWritable());
    if (options_.resume.empty() && checkpoints_->LoadLatest(nullptr).ok()) {
      return absl::AlreadyExistsError(
          absl::StrFormat("%s already holds checkpoints; go on with --resume=latest, or choose "
                          "another --out",
                          options_.out));
    }
  }
  ASSIGN_OR_RETURN(stream_, device_.NewStream());
  ASSIGN_OR_RETURN(model_, Model::Create(*std::move(plan_), device_, *stream_));
  plan_.reset();
  std::vector<Tensor> buckets;
  for (size_t b = 0; b < model_->train().plan().order.buckets.size(); ++b) {
    buckets.push_back(model_->train().bucket(static_cast<int>(b)));
  }
  ASSIGN_OR_RETURN(sync_, GradientSync::Create(device_, communication_, std::move(buckets)));
  ASSIGN_OR_RETURN(buffer_, StepBuffer::Create(device_, model_->train()));
  sum_statistic_ = StatisticSummer(communication_);
  return absl::OkStatus();
}

absl::Status TrainingRun::Restore() {
  if (options_.resume.empty()) {
    if (options_.weights.empty()) return model_->Initialize(*stream_);
    ASSIGN_OR_RETURN(const TensorFile weights, TensorFile::Read(options_.weights));
    return Annotate(model_->Load(*stream_, weights, nullptr), options_.weights);
  }
  std::vector<std::string> skipped;
  const absl::StatusOr<Checkpoint> checkpoint =
      options_.resume == "latest"
          ? CheckpointStore(absl::StrCat(options_.out, "/checkpoints"), 1).LoadLatest(&skipped)
          : LoadCheckpoint(options_.resume);
  for (const std::string& line : skipped) Say(absl::StrCat("warning: skipped ", line));
  RETURN_IF_ERROR(checkpoint.status());
  return Annotate(RestoreFrom(*checkpoint), checkpoint->path);
}

absl::Status TrainingRun::RestoreFrom(const Checkpoint& checkpoint) {
  const CheckpointState& state = checkpoint.state;
  if (state.seed() != config_.seed()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("was made with seed %d, not %d; pass --seed=%d", state.seed(),
                        config_.seed(), state.seed()));
  }
  RETURN_IF_ERROR(model_->Load(*stream_, checkpoint.weights, &checkpoint.optimizer));
  step_ = state.step();
  position_ = state.position();
  for (const auto& [name, value] : state.choices()) {
    const auto now = options_.choices.find(name);
    if (now != options_.choices.end() && now->second != value) {
      Say(
          absl::StrFormat("warning: resumed with %s %s, the checkpoint was made with %s: the run "
                          "goes on, but not with the same bits",
                          name, now->second, value));
    }
  }
  RETURN_IF_ERROR(communication_.CheckEqual(
      "the checkpoint to resume from", absl::StrCat(checkpoint.path, " ", step_, " ", position_)));
  Say(absl::StrFormat("resumed at step %d from %s", step_, checkpoint.path));
  return absl::OkStatus();
}

absl::Status TrainingRun::Loop() {
  const ModelOptions& options = model_->plan().options;
  const Share share = ShareOf(options.batch, options.rank, options.ranks);
  ASSIGN_OR_RETURN(
      const auto loader,
      BatchLoader::Create(*train_data_,
                          SampleOrder(train_data_->size(), options.seed, /*shuffle=*/true), device_,
                          {.dtype = options.compute,
                           .first_position = position_ + share.first,
                           .count = share.count,
                           .advance = options.batch}));
  while (step_ < total_steps_ && !stop_) {
    RETURN_IF_ERROR(TrainStep(*loader));
    const bool last = step_ == total_steps_;
    if (last || step_ % test_every_ == 0) RETURN_IF_ERROR(Test());
    if (last || step_ % save_every_ == 0) RETURN_IF_ERROR(Save());
  }
  RETURN_IF_ERROR(CollectReport());
  if (stop_ && step_ < total_steps_) {
    RETURN_IF_ERROR(Save());
    return absl::CancelledError(absl::StrFormat(
        "stopped after step %d; go on with --resume=latest --out=%s", step_, options_.out));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::TrainStep(BatchLoader& loader) {
  ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  StepScalars scalars;
  scalars.step = static_cast<uint64_t>(step_);
  scalars.first_sample = static_cast<uint64_t>(batch.first_position);
  scalars.learning_rate = LearningRateAt(config_.learning_rate(), step_, total_steps_);
  optimizer_->Prepare(scalars);

  RETURN_IF_ERROR(buffer_->Upload(*stream_, scalars, batch, inputs_));
  const Net& net = model_->train();
  RETURN_IF_ERROR(net.Forward(*stream_, sum_statistic_));
  RETURN_IF_ERROR(buffer_->Download(*stream_));
  RETURN_IF_ERROR(
      net.Backward(*stream_, [&](int bucket) { return sync_->Start(bucket, *stream_); }));
  // Last step's report arrived long ago; a bad label explains a bad gradient, so it comes first.
  RETURN_IF_ERROR(CollectReport());
  RETURN_IF_ERROR(stream_->Synchronize());
  RETURN_IF_ERROR(Annotate(buffer_->CheckFault(batch.first_position), "training data"));
  RETURN_IF_ERROR(UpdateParameters(scalars));
  RETURN_IF_ERROR(stream_->Synchronize());
  loader.Release(batch);
  ++step_;
  position_ += config_.batch();
  SubmitReport(scalars.learning_rate);
  return absl::OkStatus();
}

// The update gate: without clipping each bucket is updated as soon as its sum arrives; with it, the
// norm needs them all first.
absl::Status TrainingRun::UpdateParameters(StepScalars& scalars) {
  const bool clip = config_.optimizer().has_clip_norm();
  double sum_of_squares = 0;
  for (int b = 0; b < sync_->buckets(); ++b) {
    ASSIGN_OR_RETURN(const ReduceResult result, sync_->Finish(b, *stream_));
    if (!result.finite) return NotFinite("a gradient", model_->train().plan().order.buckets[b]);
    sum_of_squares += result.sum_of_squares;
    if (!clip) RETURN_IF_ERROR(UpdateBucket(b));
  }
  if (!clip) return absl::OkStatus();
  const double norm = std::sqrt(sum_of_squares);
  if (norm > config_.optimizer().clip_norm()) {
    scalars.gradient_scale = config_.optimizer().clip_norm() / norm;
    RETURN_IF_ERROR(buffer_->UploadScalars(*stream_, scalars));
  }
  for (int b = 0; b < sync_->buckets(); ++b) RETURN_IF_ERROR(UpdateBucket(b));
  return absl::OkStatus();
}

absl::Status TrainingRun::UpdateBucket(int bucket) {
  const Net& net = model_->train();
  const ParameterSet& parameters = model_->plan().parameters;
  const GradientOrder& order = net.plan().order;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const int p = order.gradients[g].parameter;
    const StateSpec& spec = parameters.all()[p].spec;
    std::vector<Tensor> slots;
    for (size_t s = 0; s < model_->plan().options.slots.size(); ++s) {
      slots.push_back(net.slot(p, static_cast<int>(s), parameters));
    }
    RETURN_IF_ERROR(optimizer_->Update(*stream_, net.step_scalars(),
                                       {.value = net.parameter(p, parameters),
                                        .gradient = net.gradient(p, parameters),
                                        .slots = slots,
                                        .learning_rate_multiplier = spec.learning_rate_multiplier,
                                        .decay_multiplier = spec.decay_multiplier}));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::NotFinite(absl::string_view what, const GradientBucket& bucket) const {
  const GradientOrder& order = model_->train().plan().order;
  const std::span<const Parameter> all = model_->plan().parameters.all();
  std::string names;
  for (int g = bucket.first; g < bucket.last; ++g) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", all[order.gradients[g].parameter].name());
  }
  return absl::InternalError(absl::StrFormat(
      "step %d: %s is not finite%s%s; lower learning_rate.base, warm up, or set "
      "optimizer.clip_norm%s",
      step_ + 1, what, names.empty() ? "" : ": one of ", names,
      saved_step_ >= 0 ? absl::StrFormat("; the checkpoint of step %d stands", saved_step_) : ""));
}

void TrainingRun::SubmitReport(double learning_rate) {
  Report& report = report_.emplace();
  const Tensor metrics = buffer_->metrics();
  const double* values = metrics.as<double>();
  report.sums.assign(values, values + metrics.elements());
  report.sums.push_back(options_.stop != nullptr && options_.stop->load() ? 1 : 0);
  report.learning_rate = learning_rate;
  report.step = step_;
  report.ticket = communication_.Submit(
      "step metrics",
      {report.sums.data(), Shape({static_cast<int64_t>(report.sums.size())}), DType::kF64},
      nullptr);
}

absl::Status TrainingRun::CollectReport() {
  if (!report_.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(communication_.Wait(report_->ticket).status());
  const Report report = *std::exchange(report_, std::nullopt);
  std::vector<Metric> metrics = MetricsOf(model_->train().plan().spec);
  for (size_t m = 0; m < metrics.size(); ++m) {
    metrics[m].sum = report.sums[2 * m];
    metrics[m].count = report.sums[2 * m + 1];
  }
  stop_ = stop_ || report.sums.back() > 0;
  if (!std::isfinite(TotalLoss(metrics))) return NotFinite("the loss", {});
  return leader() ? log_->Step(report.step, metrics, report.learning_rate) : absl::OkStatus();
}

absl::Status TrainingRun::Test() {
  if (!test_data_) return absl::OkStatus();
  RETURN_IF_ERROR(CollectReport());
  std::function<void(int64_t)> progress;
  if (leader()) progress = [&](int64_t done) { log_->TestProgress(done, test_data_->size()); };
  ASSIGN_OR_RETURN(
      const std::vector<Metric> metrics,
      Evaluate(*model_, *test_data_, inputs_, device_, *stream_, communication_, progress));
  return leader() ? log_->Test(step_, metrics) : absl::OkStatus();
}

absl::Status TrainingRun::Save() {
  RETURN_IF_ERROR(CollectReport());
  saved_step_ = step_;
  if (!leader()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostTensors weights, model_->Weights(*stream_));
  ASSIGN_OR_RETURN(const HostTensors optimizer, model_->OptimizerState(*stream_));
  CheckpointState state;
  state.set_step(step_);
  state.set_position(position_);
  state.set_seed(config_.seed());
  state.set_total_steps(total_steps_);
  state.set_net(options_.net_text);
  state.set_trainer(options_.trainer_text);
  state.mutable_choices()->insert(options_.choices.begin(), options_.choices.end());
  return checkpoints_->Save(state, weights.tensors, optimizer.tensors);
}

void TrainingRun::Say(const std::string& line) {
  if (!leader()) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace gyre
