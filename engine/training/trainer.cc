#include "engine/training/trainer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/data/atomic_file.h"
#include "engine/training/learning_rate_schedule.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"

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
  const int64_t epoch = (samples + config.batch() - 1) / config.batch();
  run->test_every_ = config.has_evaluate_every() ? config.evaluate_every() : epoch;
  run->save_every_ = config.has_checkpoint_every() ? config.checkpoint_every() : epoch;

  std::string device_allreduce;
  if (communication.size() > 1) {
    RETURN_IF_ERROR(communication.UseDevice(device));
    if (device.kind() != DeviceKind::kCpu && communication.sums_device_memory()) {
      device_allreduce = config.distributed().allreduce();
    }
  }
  const int64_t test_samples = run->test_data_ ? run->test_data_->size() : 0;
  ASSIGN_OR_RETURN(
      run->plan_,
      PlanModel(net, {.compute = ComputeTypeOf(config),
                      .seed = config.seed(),
                      .batch = config.batch(),
                      .test_batch = TestBatchOf(config, test_samples),
                      .test_samples = test_samples,
                      .rank = communication.rank(),
                      .ranks = communication.size(),
                      .slots = run->optimizer_->slot_names(),
                      .bucket_bytes = static_cast<size_t>(config.distributed().bucket_bytes()),
                      .capacity_bytes = device.capacity_bytes(),
                      .device_allreduce = device_allreduce,
                      .primitives = &primitives}));
  RETURN_IF_ERROR(communication.CheckEqual("--threads", run->options_.choices["threads"]));
  RETURN_IF_ERROR(
      communication.CheckEqual("the trainer file with its overrides", config.DebugString()));
  RETURN_IF_ERROR(
      communication.CheckEqual("the net file with its overrides", net.message->DebugString()));
  RETURN_IF_ERROR(communication.CheckEqual("the numbers of training and test samples",
                                           absl::StrCat(samples, " ", test_samples)));
  const std::string fingerprint = run->plan_->Fingerprint();
  RETURN_IF_ERROR(communication.CheckEqual("the weights' layouts and buckets", fingerprint));
  run->options_.choices["layouts"] = Sha256(fingerprint).substr(0, 16);
  if (const std::string algorithms = primitives.choices(); !algorithms.empty()) {
    RETURN_IF_ERROR(communication.CheckEqual("the libraries' algorithms", algorithms));
    run->options_.choices["algorithms"] = Sha256(algorithms).substr(0, 16);
  }
  return run;
}

absl::Status TrainingRun::OpenData(const Parsed<NetConfig>& net) {
  const DataConfig& data = config_.data();
  ASSIGN_OR_RETURN(train_data_, OpenSamples(trainer_, /*train=*/true));
  ASSIGN_OR_RETURN(inputs_, MapInputs(net, data, *train_data_));
  if (!data.has_test()) return absl::OkStatus();
  ASSIGN_OR_RETURN(test_data_, OpenSamples(trainer_, /*train=*/false));
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
      "device memory: %d bytes for all nets, %d for gradients, %d for batches and reports\n",
      total_steps_, config_.batch(), communication_.size(), plan_->train->spec.local_batch,
      plan_->train->order.buckets.size(), gradients,
      AllreduceBytesSent(config_.distributed().allreduce(), static_cast<double>(gradients),
                         communication_.size()),
      config_.distributed().allreduce(), plan_->device_bytes(), plan_->communication_bytes(),
      plan_->side_bytes());
  return text;
}

absl::StatusOr<std::string> TrainingRun::Run() {
  RETURN_IF_ERROR(CreateModel());
  RETURN_IF_ERROR(Restore());
  if (leader()) RETURN_IF_ERROR(OpenOutput());
  if (const absl::Status status = Loop(); !status.ok()) {
    if (saved_step_ < 0 || absl::IsCancelled(status)) return status;
    return absl::Status(status.code(), absl::StrFormat("%s; the checkpoint of step %d stands",
                                                       status.message(), saved_step_));
  }
  RETURN_IF_ERROR(communication_.Barrier());  // nobody leaves while another may still fail
  return model_->Sha256OfWeights(*stream_);
}

absl::Status TrainingRun::CreateModel() {
  ASSIGN_OR_RETURN(stream_, device_.NewStream());
  ASSIGN_OR_RETURN(model_, Model::Create(*std::move(plan_), device_, *stream_));
  plan_.reset();
  std::optional<double> clip_norm;
  if (config_.optimizer().has_clip_norm()) clip_norm = config_.optimizer().clip_norm();
  ASSIGN_OR_RETURN(training_step_, TrainingStep::Create(*model_, *optimizer_, clip_norm, inputs_,
                                                        device_, *stream_, communication_));
  return absl::OkStatus();
}

// Last before training, so that a run which cannot begin leaves no folder behind.
absl::Status TrainingRun::OpenOutput() {
  checkpoints_.emplace(absl::StrCat(options_.out, "/checkpoints"),
                       static_cast<int>(config_.keep_checkpoints()));
  ASSIGN_OR_RETURN(const int64_t newest, checkpoints_->NewestStep());
  if (newest >= 0 && options_.resume.empty()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s already holds checkpoints; go on with --resume=latest, or choose "
                        "another --out",
                        options_.out));
  }
  if (newest > step_ && options_.resume != "latest") {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s holds a checkpoint of step %d, beyond the one to resume from (%d), which a later "
        "--resume=latest would take; choose another --out, or delete what is newer",
        options_.out, newest, step_));
  }
  RETURN_IF_ERROR(checkpoints_->ProbeWritable());
  ASSIGN_OR_RETURN(lock_, FolderLock::Take(options_.out));
  ASSIGN_OR_RETURN(log_, RunLog::Open(options_.out, step_, total_steps_, config_.batch()));
  return absl::OkStatus();
}

absl::Status TrainingRun::Restore() {
  RETURN_IF_ERROR(SetWeights());
  ASSIGN_OR_RETURN(const std::string digest, model_->Sha256OfWeights(*stream_));
  return communication_.CheckEqual("the weights to start from", digest);
}

absl::Status TrainingRun::SetWeights() {
  if (!options_.resume.empty() && !options_.weights.empty()) {
    return absl::InvalidArgumentError(
        "--weights starts a new run and --resume goes on with one that has weights; give one");
  }
  if (options_.resume.empty()) {
    if (options_.weights.empty()) return model_->Initialize(*stream_);
    const auto weights = TensorFile::Read(options_.weights);
    if (!weights.ok()) return Annotate(weights.status(), "--weights");
    return Annotate(model_->Load(*stream_, *weights, nullptr), options_.weights);
  }
  std::vector<std::string> skipped;
  const bool latest = options_.resume == "latest";
  const absl::StatusOr<Checkpoint> checkpoint =
      latest ? CheckpointStore(absl::StrCat(options_.out, "/checkpoints"), 1).LoadLatest(&skipped)
             : LoadCheckpoint(options_.resume);
  for (const std::string& line : skipped) Say(absl::StrCat("warning: skipped ", line));
  if (!checkpoint.ok()) {
    return absl::Status(
        checkpoint.status().code(),
        absl::StrFormat("--resume=%s: %s; %s", options_.resume, checkpoint.status().message(),
                        latest ? "leave --resume out to start anew"
                               : "give \"latest\", or the folder of one checkpoint, such as "
                                 "runs/a/checkpoints/step_00000200"));
  }
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
  if (state.net() != options_.net_text) {
    return absl::InvalidArgumentError(
        "was made with another net (its layers' settings differ); to start a new run from its "
        "weights, give its weights.safetensors to --weights");
  }
  step_ = state.step();
  position_ = state.position();
  TrainerConfig before;
  std::string changes;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&changes);
  if (google::protobuf::TextFormat::ParseFromString(state.trainer(), &before) &&
      !differencer.Compare(before, config_)) {
    Say(absl::StrCat("warning: the trainer has changed since the checkpoint: ",
                     absl::StrReplaceAll(absl::StripSuffix(changes, "\n"), {{"\n", "; "}})));
  }
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
      loader_,
      BatchLoader::Create(*train_data_,
                          SampleOrder(train_data_->size(), options.seed, /*shuffle=*/true), device_,
                          {.dtype = options.compute,
                           .first_position = position_ + share.first,
                           .count = share.count,
                           .advance = options.batch,
                           .depth = TrainingStep::kMostInFlight + 2}));
  while (step_ < total_steps_ && !stop_) {
    if (const absl::Status status = StartStep(); !status.ok()) {
      const absl::Status earlier = FinishAll();  // the steps before it have lines, or an error, too
      return earlier.ok() ? status : earlier;
    }
    // The step before it, which the device has been busy with meanwhile.
    if (training_step_->in_flight() > 1) RETURN_IF_ERROR(FinishStep());
    const bool last = step_ == total_steps_;
    if (last || step_ % test_every_ == 0) RETURN_IF_ERROR(Test());
    if (last || step_ % save_every_ == 0) RETURN_IF_ERROR(Save());
  }
  RETURN_IF_ERROR(FinishAll());
  if (stop_ && step_ < total_steps_) {
    RETURN_IF_ERROR(Save());
    RETURN_IF_ERROR(communication_.Barrier());  // nobody leaves while the leader is writing
    return absl::CancelledError(absl::StrFormat(
        "stopped after step %d; go on with --resume=latest --out=%s", step_, options_.out));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::StartStep() {
  ASSIGN_OR_RETURN(const Batch batch, loader_->Next());
  StepScalars scalars;
  scalars.step = static_cast<uint64_t>(step_);
  scalars.first_sample = static_cast<uint64_t>(batch.first_position);
  scalars.learning_rate = LearningRateAt(config_.learning_rate(), step_, total_steps_);
  ++step_;
  position_ += config_.batch();
  in_flight_.push_back({batch, scalars.learning_rate, step_});
  const absl::Status started = training_step_->Start(batch, scalars);
  if (!training_step_->refusal().ok() && !warned_) {
    warned_ = true;
    Say(
        absl::StrCat("warning: steps are launched piece by piece, which is slower, because the "
                     "device could not capture them: ",
                     std::string(training_step_->refusal().message())));
  }
  return Annotate(started, absl::StrCat("step ", step_));
}

absl::Status TrainingRun::FinishStep() {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  RETURN_IF_ERROR(CollectReport());  // first: an error of this step must not hide that one
  const absl::StatusOr<Tensor> metrics = training_step_->Finish();
  if (!metrics.ok()) return Annotate(metrics.status(), absl::StrCat("step ", step.step));
  loader_->Release(step.batch);
  SubmitReport(*metrics, step);
  return absl::OkStatus();
}

absl::Status TrainingRun::FinishAll() {
  while (training_step_->in_flight() > 0) RETURN_IF_ERROR(FinishStep());
  return CollectReport();
}

void TrainingRun::SubmitReport(const Tensor& metrics, const InFlight& step) {
  Report& report = report_.emplace();
  const double* values = metrics.as<double>();
  report.sums.assign(values, values + metrics.elements());
  report.sums.push_back(options_.stop != nullptr && options_.stop->load() ? 1 : 0);
  report.learning_rate = step.learning_rate;
  report.step = step.step;
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
  if (!std::isfinite(TotalLoss(metrics))) {
    return absl::InternalError(
        absl::StrFormat("step %d: the loss is not finite; %s", report.step, kDivergenceAdvice));
  }
  return leader() ? log_->Step(report.step, metrics, report.learning_rate) : absl::OkStatus();
}

absl::Status TrainingRun::Test() {
  if (!test_data_) return absl::OkStatus();
  RETURN_IF_ERROR(FinishAll());
  std::function<void(int64_t)> progress;
  if (leader()) progress = [&](int64_t done) { log_->TestProgress(done, test_data_->size()); };
  ASSIGN_OR_RETURN(
      const std::vector<Metric> metrics,
      Evaluate(*model_, *test_data_, inputs_, device_, *stream_, communication_, progress));
  return leader() ? log_->Test(step_, metrics) : absl::OkStatus();
}

absl::Status TrainingRun::Save() {
  RETURN_IF_ERROR(FinishAll());
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
  // First, so that a resumed run finds the lines of all steps before the checkpoint.
  RETURN_IF_ERROR(log_->Flush());
  RETURN_IF_ERROR(checkpoints_->Save(state, weights.tensors, optimizer.tensors));
  saved_step_ = step_;
  return absl::OkStatus();
}

void TrainingRun::Say(const std::string& line) {
  if (!leader()) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace gyre
