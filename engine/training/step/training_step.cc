#include "engine/training/step/training_step.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/timeline.h"
#include "engine/training/net/infer/net_kernels.h"
#include "engine/training/step/enter_steps.h"

namespace gyre {
namespace {

// A longer list of names tells the reader of an error no more.
constexpr size_t kLongestNames = 60;

std::vector<std::string> ParametersOf(const Model& model, const GradientBucket& bucket) {
  std::vector<std::string> names;
  for (int g = bucket.first; g < bucket.last; ++g) {
    const int parameter = model.train().plan().order.gradients[g].parameter;
    names.push_back(model.plan().parameters.all()[parameter].name());
  }
  return names;
}

std::string Short(const std::vector<std::string>& names) {
  std::string all = absl::StrJoin(names, ", ");
  if (all.size() <= kLongestNames || names.size() < 3) return all;
  return absl::StrCat(names.front(), " to ", names.back(), ", ", names.size(), " in all");
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingStep>> TrainingStep::Create(
    const Model& model, const Optimizer& optimizer, Device& device, Stream& stream,
    ProcessGroup& communication, bool replay, const ServerSync::LearningRate& learning_rate) {
  const Net& net = model.train();
  const LossScale& loss_scale = net.plan().spec.shape.loss_scale;
  const UpdateGate gate = {.clip_norm = net.plan().spec.shape.clip_norm,
                           .loss_scale = net.loss_scale(),
                           .growth_interval = loss_scale.growth_interval,
                           .shares = static_cast<double>(net.plan().spec.shape.shares())};
  ASSIGN_OR_RETURN(InputUpload upload, InputUpload::Create(device, net));
  std::unique_ptr<TrainingStep> step(
      new TrainingStep(model, optimizer, gate, device, stream, communication, std::move(upload)));
  RETURN_IF_ERROR(step->SetLossScale({.scale = loss_scale.initial}));
  if (net.plan().spec.shape.server) {
    ASSIGN_OR_RETURN(step->server_, ServerSync::Create(model, optimizer, gate, learning_rate,
                                                       device, stream, communication));
  }
  std::vector<GradientSync::SyncedBucket> buckets;
  for (int b = 0; !step->served() && b < static_cast<int>(net.plan().order.buckets.size()); ++b) {
    const TouchedTable* const table = TableOf(net.plan(), b);
    buckets.push_back({.gradients = net.bucket(b, net.plan().trace.ready_steps[b]),
                       .summed = net.sent(b) ? net.summed(b) : Tensor{},
                       .parameters = Short(ParametersOf(model, net.plan().order.buckets[b])),
                       .table = table,
                       .rows = table != nullptr ? net.table(*table) : Net::TableTensors{}});
  }
  ASSIGN_OR_RETURN(step->sync_, GradientSync::Create(
                                    device, communication, buckets, net.sums(), net.sums_scratch(),
                                    !step->sharded() || step->served() ? GradientSync::Halves::kNone
                                    : model.one_copy() ? GradientSync::Halves::kOneCopy
                                                       : GradientSync::Halves::kGather));
  for (int index = 0; index < kMostStepsInFlight; ++index) {
    ASSIGN_OR_RETURN(StepBuffer buffer, StepBuffer::Create(device, net));
    StepLane& lane = step->lanes_.emplace_back(StepLane{
        .buffer = std::move(buffer), .done = {}, .accumulate = {}, .update = {}, .updates = {}});
    ASSIGN_OR_RETURN(lane.done, device.NewEvent());
    const auto graph = [&](StepGraph::Work work) {
      return std::make_unique<StepGraph>(stream, std::move(work), replay);
    };
    using Between = StepGraph::Between;
    TrainingStep* const self = step.get();
    const auto iteration = [&](bool update) {
      return graph([self, index, update](const Between& between) {
        return self->Enqueue(index, update, between,
                             EnterSteps(self->model_.train_pager(update), self->stream_, between));
      });
    };
    lane.accumulate = iteration(false);
    lane.update = iteration(true);
    const int buckets_in_all = static_cast<int>(net.plan().order.buckets.size());
    for (int b = 0; self->defers() && b < buckets_in_all; ++b) {
      lane.updates.push_back(graph([self, index, b](const Between&) {
        return self->sharded() ? self->TakeValues(b) : self->UpdateTile(index, b, /*tile=*/0);
      }));
    }
  }
  return step;
}

absl::Status TrainingStep::SetLossScale(const LossScaleState& state) {
  GYRE_CHECK(in_flight_ == 0);
  loss_scale_ = state;
  if (served()) server_->SetLossScale(state);
  return gate_.loss_scale ? gyre::SetLossScale(stream_, state, gate_.loss_scale) : absl::OkStatus();
}

size_t TrainingStep::graph_nodes() const {
  size_t nodes = lanes_[0].update->nodes();
  for (const auto& update : lanes_[0].updates) nodes += update->nodes();
  return nodes;
}

absl::Status TrainingStep::Start(const Batch& batch, int64_t step,
                                 std::optional<double> learning_rate) {
  return Start(batch, step, learning_rate, [&](StepLane& lane) {
    return (learning_rate ? lane.update : lane.accumulate)->Run();
  });
}

absl::StatusOr<std::vector<double>> TrainingStep::StartTimed(const Batch& batch, int64_t step,
                                                             double learning_rate) {
  const Net& net = model_.train();
  std::vector<double> at_positions(net.plan().paging->order.size());
  RETURN_IF_ERROR(Start(batch, step, learning_rate, [&](StepLane&) {
    const StepGraph::Between at_once = [](const StepGraph::Action& action) { return action(); };
    return Enqueue(next_, /*update=*/true, at_once,
                   TimeSteps(*model_.train_pager(), stream_, at_positions));
  }));
  std::vector<double> seconds(net.plan().trace.trace.steps.size());
  for (size_t s = 0; s < seconds.size(); ++s) {
    seconds[s] = at_positions[net.At(static_cast<int>(s))];
  }
  return seconds;
}

absl::Status TrainingStep::StartServing(int64_t step) {
  ASSIGN_OR_RETURN(const int64_t bad_bucket, server_->Serve(step));
  diverged_ = bad_bucket >= 0;
  return diverged_ ? NotFinite(bad_bucket) : absl::OkStatus();
}

absl::Status TrainingStep::Start(const Batch& batch, int64_t step,
                                 std::optional<double> learning_rate,
                                 const std::function<absl::Status(StepLane&)>& enqueue) {
  GYRE_CHECK(in_flight_ < kMostStepsInFlight);
  GYRE_CHECK(learning_rate.has_value() || model_.plan().options.shape.accumulate > 1);
  StepLane& lane = lanes_[next_];
  const auto number = static_cast<uint64_t>(step);
  // The gate knows a dynamic scale.
  const double loss_scale = model_.plan().options.shape.loss_scale.initial;
  if (served()) RETURN_IF_ERROR(server_->Begin(step));
  updates_[next_] = {.learning_rate = learning_rate.value_or(0), .gradient_scale = 1 / loss_scale};
  optimizer_.Prepare(number, updates_[next_]);
  lane.buffer.Set({number, static_cast<uint64_t>(batch.first_position)}, updates_, loss_scale,
                  /*first_batch=*/batch_ == 0);
  lane.updating = learning_rate.has_value();
  lane.bad_bucket.reset();
  lane.batch = batch;
  if (Pager* const next = model_.train_pager(lane.updating); next != pager_) {
    RETURN_IF_ERROR(pager_->HandOver(*next, stream_));
    pager_ = next;
  }
  RETURN_IF_ERROR(upload_.Start(next_, batch, stream_));
  const Net& net = model_.train();
  RETURN_IF_ERROR(net.CopyCarried(stream_, batch_, /*home=*/false));
  RETURN_IF_ERROR(enqueue(lane));
  RETURN_IF_ERROR(net.CopyCarried(stream_, batch_, /*home=*/true));
  batch_ = learning_rate ? 0 : batch_ + 1;
  RETURN_IF_ERROR(stream_.Record(*lane.done));
  next_ = (next_ + 1) % kMostStepsInFlight;
  ++in_flight_;
  return absl::OkStatus();
}

absl::StatusOr<Tensor> TrainingStep::Finish() {
  GYRE_CHECK(in_flight_ > 0);
  const int index = (next_ + kMostStepsInFlight - in_flight_) % kMostStepsInFlight;
  const StepLane& lane = lanes_[index];
  --in_flight_;
  RETURN_IF_ERROR(lane.done->Synchronize());
  // A bad label explains a bad gradient, so it is looked at first.
  RETURN_IF_ERROR(Annotate(lane.buffer.CheckFault(lane.batch), "training data"));
  for (int b = sync_->buckets() - 1; summing_ == index && b >= 0; --b) {
    RETURN_IF_ERROR(FinishSum(b));
  }
  const GradientReport& found = lane.buffer.gradients();
  const int64_t bad_bucket = lane.bad_bucket.value_or(found.bad_bucket);
  skipped_ = bad_bucket >= 0 && gate_.loss_scale && found.loss_scale.scale >= kLeastLossScale;
  diverged_ = bad_bucket >= 0 && !skipped_;
  if (diverged_) return NotFinite(bad_bucket);
  if (lane.updating && gate_.loss_scale) loss_scale_ = found.loss_scale;
  return lane.buffer.metrics();
}

// Enqueues all of an iteration that is the same each time.
absl::Status TrainingStep::Enqueue(int index, bool update, const StepGraph::Between& between,
                                   const Net::Enter& enter) {
  const Net& net = model_.train(update);
  const StepBuffer& buffer = lanes_[index].buffer;
  const TimelineLabel label("step");
  const NetTrace& trace = net.plan().trace;
  RETURN_IF_ERROR(enter(net.At(trace.upload_step)));
  RETURN_IF_ERROR(buffer.Upload(stream_));
  RETURN_IF_ERROR(upload_.Deliver(index, stream_, net));
  const auto sum = [&](Stream&, absl::string_view label, Tensor statistic) {
    if (sync_->on_stream()) return absl::OkStatus();  // one rank
    return between([this, label = std::string(label), statistic] {
      return sum_statistic_(stream_, label, statistic);
    });
  };
  const auto needed = [&](int bucket) -> absl::Status {
    if (!defers()) return absl::OkStatus();
    if (!served()) return between([this, bucket] { return FinishSum(bucket); });
    if (const int take = trace.take_steps[bucket]; take >= 0) RETURN_IF_ERROR(enter(net.At(take)));
    return between([this, index, bucket] {
      return server_->Take(bucket, [&] { return lanes_[index].updates[bucket]->Run(); });
    });
  };
  RETURN_IF_ERROR(net.Forward(stream_, sum, needed, enter));
  const auto ready = [&](int bucket) -> absl::Status {
    if (!update) return absl::OkStatus();
    if (const int step = trace.ready_steps[bucket]; step >= 0) {
      RETURN_IF_ERROR(enter(net.At(step)));
      RETURN_IF_ERROR(net.ClearPadding(stream_, bucket));
    }
    return served() ? server_->Ready(bucket, between) : Ready(index, bucket, between, enter);
  };
  RETURN_IF_ERROR(net.Backward(stream_, sum, ready, enter));
  if (update && served()) RETURN_IF_ERROR(server_->EndStep(index, between, enter));
  if (update && !served() && !updates_on_arrival()) {
    RETURN_IF_ERROR(Update(index, between, enter));
  }
  RETURN_IF_ERROR(enter(net.At(trace.report_step)));
  RETURN_IF_ERROR(buffer.Download(stream_));
  return enter(net.At(static_cast<int>(trace.trace.steps.size())));
}

// The bucket's gradients are on the stream.
absl::Status TrainingStep::Ready(int lane, int bucket, const StepGraph::Between& between,
                                 const Net::Enter& enter) {
  if (sync_->on_stream()) {
    RETURN_IF_ERROR(sync_->Start(bucket, stream_));
  } else {
    RETURN_IF_ERROR(between([this, lane, bucket] { return StartSum(lane, bucket); }));
  }
  for (const int b : model_.train().plan().trace.updates_behind[bucket]) {
    RETURN_IF_ERROR(EnterUpdate(lane, b, between, enter));
  }
  return absl::OkStatus();
}

// Enters the update of a bucket that waits only for its own sum.
absl::Status TrainingStep::EnterUpdate(int lane, int bucket, const StepGraph::Between& between,
                                       const Net::Enter& enter) {
  const Net& net = model_.train();
  if (!sync_->on_stream()) {
    RETURN_IF_ERROR(enter(net.At(net.plan().trace.update_steps[bucket].front())));
    RETURN_IF_ERROR(between([this, bucket] { return sync_->Finish(bucket, stream_).status(); }));
  }
  return RunUpdate(lane, bucket, between, enter);
}

absl::Status TrainingStep::RunUpdate(int lane, int bucket, const StepGraph::Between& between,
                                     const Net::Enter& enter) {
  const Net& net = model_.train();
  for (int tile = 0; tile < net.tiles(bucket); ++tile) {
    const int step = net.plan().trace.update_steps[bucket][tile];
    RETURN_IF_ERROR(enter(net.At(step)));
    if (!net.OnHost(step)) {
      RETURN_IF_ERROR(UpdateTile(lane, bucket, tile));
      continue;
    }
    RETURN_IF_ERROR(between([this, lane, bucket, tile, position = net.At(step)] {
      const TimelineLabel label("update");
      return model_.train_pager()->RunOnHost(position, HostUpdate(lane, bucket, tile));
    }));
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::StartSum(int lane, int bucket) {
  RETURN_IF_ERROR(sync_->Start(bucket, stream_));
  summing_ = lane;
  return updates_on_arrival() ? TakeArrived() : absl::OkStatus();
}

// Finishes a bucket in progress, and those that arrive earlier, lest their updates wait.
absl::Status TrainingStep::FinishSum(int bucket) {
  for (int64_t seen = -1; sync_->under_way(bucket);) {
    ASSIGN_OR_RETURN(seen, communication_.WaitForMore(seen));
    RETURN_IF_ERROR(TakeArrived());
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::TakeArrived() {
  for (int b = sync_->buckets() - 1; b >= 0; --b) {
    if (!sync_->under_way(b)) continue;
    ASSIGN_OR_RETURN(const bool arrived, sync_->Arrived(b));
    if (arrived) RETURN_IF_ERROR(Take(b));
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::Take(int bucket) {
  ASSIGN_OR_RETURN(const double squares, sync_->Finish(bucket, stream_));
  if (model_.train().sent(bucket)) {
    RETURN_IF_ERROR(sync_->Bring(bucket, /*gathered=*/sharded(), stream_));
  }
  StepLane& lane = lanes_[summing_];
  if (!std::isfinite(squares)) lane.bad_bucket = std::min(bucket, lane.bad_bucket.value_or(bucket));
  return lane.updates[bucket]->Run();
}

absl::Status TrainingStep::Update(int lane, const StepGraph::Between& between,
                                  const Net::Enter& enter) {
  const Net& net = model_.train();
  const NetTrace& trace = net.plan().trace;
  StepScalars* const block = net.step_scalars();
  const auto update = [&](int b) -> absl::Status {
    RETURN_IF_ERROR(RunUpdate(lane, b, between, enter));
    if (!sharded()) return absl::OkStatus();
    RETURN_IF_ERROR(between([this, b] { return sync_->StartGather(b, stream_); }));
    // While its parameters are on the device.
    if (!model_.plan().pages()) return absl::OkStatus();
    return between([this, b] { return Take(b); });
  };
  const bool together = gate_.holds();  // all buckets
  if (!sync_->on_stream()) {
    for (const int b : trace.last_updates) {
      if (!together && !sharded()) {
        RETURN_IF_ERROR(EnterUpdate(lane, b, between, enter));
        continue;
      }
      RETURN_IF_ERROR(between([this, b] { return sync_->Finish(b, stream_).status(); }));
      if (!together) RETURN_IF_ERROR(update(b));
    }
    if (sharded()) RETURN_IF_ERROR(between([this] { return sync_->AddSumsOfShards(); }));
    RETURN_IF_ERROR(sync_->UploadSums(stream_));
  }
  RETURN_IF_ERROR(
      PassGate(stream_, gate_, sync_->sums(), sync_->buckets(), &block->updates[lane], block));
  if (!together) return absl::OkStatus();
  for (const int b : trace.last_updates) RETURN_IF_ERROR(update(b));
  return absl::OkStatus();
}

TrainingStep::BucketViews TrainingStep::ViewsOf(int bucket, int tile) const {
  const Net& net = model_.train();
  const ParameterSet& parameters = model_.plan().parameters;
  const ElementRange own = UpdatedShard(net.plan(), bucket), of_own = net.tile(bucket, tile);
  const ElementRange part = {own.begin + of_own.begin, std::min(own.end, own.begin + of_own.end)};
  const std::vector<ParameterRange> ranges = RangesIn(net.plan().order, parameters, bucket, part);
  const int step = net.plan().trace.update_steps[bucket][tile];
  const int kinds = net.plan().slots.kinds();
  const Tensor gradients = net.sent(bucket) ? net.summed(bucket) : net.bucket(bucket, step);
  BucketViews all;
  std::vector<Tensor>& slots = all.slots;
  for (const ParameterRange& range : ranges) {
    for (int kind = 0; kind < kinds; ++kind) {
      slots.push_back(
          Slice(net.slot(bucket, kind, tile, step), range.at - part.begin, range.count));
    }
  }
  const TouchedTable* const table = TableOf(net.plan(), bucket);
  std::vector<ParameterViews>& views = all.parameters;
  for (const auto& [p, begin, at, count] : ranges) {
    const StateSpec& spec = parameters.all()[p].spec;
    views.push_back({.value = Slice(net.parameter(p, parameters, step), begin, count),
                     .gradient = Slice(gradients, at, count),
                     .slots = std::span(slots).subspan(views.size() * kinds, kinds),
                     .learning_rate_multiplier = spec.learning_rate_multiplier,
                     .decay_multiplier = spec.decay_multiplier,
                     .master = net.plan().slots.has_master(bucket)
                                   ? Slice(net.master(bucket, tile, step), at - part.begin, count)
                                   : Tensor{}});
    if (table == nullptr) continue;
    if (!spec.lazy && !optimizer_.leaves_untouched(spec.decay_multiplier)) continue;
    views.back().rows = net.table(*table).rows;
    views.back().width = table->width;
    views.back().begin = begin;
  }
  return all;
}

// Updates a tile.  A shard's new values also go to the bucket, unless ranks share one copy.
absl::Status TrainingStep::UpdateTile(int lane, int bucket, int tile) {
  const TimelineLabel label("update");
  if (model_.train().sent(bucket)) {
    RETURN_IF_ERROR(sync_->Bring(bucket, /*gathered=*/false, stream_));
  }
  const BucketViews all = ViewsOf(bucket, tile);
  const std::vector<ParameterViews>& views = all.parameters;
  RETURN_IF_ERROR(optimizer_.Update(stream_, &model_.train().step_scalars()->updates[lane], views));
  // With one copy, all ranks see the values in place.
  if (!sharded() || model_.one_copy()) return absl::OkStatus();
  for (const ParameterViews& view : views) {
    RETURN_IF_ERROR(stream_.Copy(view.gradient.data, view.value.data, view.value.bytes()));
  }
  return absl::OkStatus();
}

// The result may run when the lane already has the next iteration's scalars, and after `this` is
// gone.
std::function<absl::Status()> TrainingStep::HostUpdate(int lane, int bucket, int tile) const {
  return [&optimizer = optimizer_, host = host_, scalars = updates_[lane],
          all = std::make_shared<const BucketViews>(ViewsOf(bucket, tile))]() -> absl::Status {
    // Made here, as a stream belongs to one thread.
    ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, host->NewStream());
    return optimizer.Update(*stream, &scalars, all->parameters);
  };
}

absl::Status TrainingStep::TakeValues(int bucket) {
  if (model_.one_copy()) return absl::OkStatus();
  const Net& net = served() ? model_.taking() : model_.train();
  const ParameterSet& parameters = model_.plan().parameters;
  const NetTrace& trace = net.plan().trace;
  const int step = served() ? trace.take_steps[bucket] : trace.update_steps[bucket].back();
  // With a server, the worker's values of its own shard are older, too.
  const ElementRange own = served() ? ElementRange{} : UpdatedShard(net.plan(), bucket);
  const Tensor values = net.summed(bucket);
  const ElementRange others[] = {{0, own.begin}, {own.end, values.elements()}};
  for (const ElementRange part : others) {
    for (const auto& [p, begin, at, count] : RangesIn(net.plan().order, parameters, bucket, part)) {
      const Tensor value = Slice(net.parameter(p, parameters, step), begin, count);
      RETURN_IF_ERROR(stream_.Copy(value.data, Slice(values, at, count).data, value.bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::NotFinite(int64_t bucket) const {
  const GradientBucket& gradients = model_.train().plan().order.buckets[bucket];
  const std::string names = absl::StrJoin(ParametersOf(model_, gradients), ", ");
  // Squares of F32 do not overflow the double that adds them.
  const bool may_be_large = model_.plan().options.shape.compute == DType::kF64;
  const bool scaled = !gate_.loss_scale && model_.plan().options.shape.loss_scale.initial > 1;
  return absl::InternalError(absl::StrCat(
      "a gradient is not finite", may_be_large ? ", or beyond 1e154" : "",
      gate_.loss_scale ? ", of however small a loss scale" : "", ": one of ", names, "; ",
      scaled ? "lower loss_scale.fixed, or give loss_scale.dynamic; or " : "", kDivergenceAdvice));
}

}  // namespace gyre
