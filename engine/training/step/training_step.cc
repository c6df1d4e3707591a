#include "engine/training/step/training_step.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/timeline.h"
#include "engine/training/net/infer/net_kernels.h"
#include "engine/training/net/run/row_kernels.h"
#include "engine/training/step/enter_steps.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<TrainingStep>> TrainingStep::Create(
    const Model& model, const Optimizer& optimizer, Device& device, Stream& stream,
    ProcessGroup& communication, bool replay, const RateOfStep& learning_rate, int player) {
  const Net& net = model.turn(player).net();
  GYRE_CHECK(optimizer.scales_by_norms() == net.plan().spec.shape.scales_by_norms);
  const LossScale& loss_scale = net.plan().spec.shape.loss_scale;
  const UpdateGate gate = {.clip_norm = net.plan().spec.shape.clip_norm,
                           .loss_scale = net.loss_scale(),
                           .growth_interval = loss_scale.growth_interval,
                           .shares = static_cast<double>(net.plan().spec.shape.shares())};
  ASSIGN_OR_RETURN(InputUpload upload, InputUpload::Create(device, net));
  std::unique_ptr<TrainingStep> step(new TrainingStep(model, player, optimizer, gate, device,
                                                      stream, communication, std::move(upload)));
  ASSIGN_OR_RETURN(step->exchange_,
                   NewExchange(model, player, optimizer, learning_rate, device, stream,
                               communication, [self = step.get()](int bucket, double squares) {
                                 return self->TakeIn(bucket, squares);
                               }));
  RETURN_IF_ERROR(step->SetLossScale({.scale = loss_scale.initial}));
  step->SetGroups({});
  for (int index = 0; index < kMostStepsInFlight; ++index) {
    ASSIGN_OR_RETURN(StepBuffer buffer, StepBuffer::Create(device, net));
    StepLane& lane = step->lanes_.emplace_back(StepLane{
        .buffer = std::move(buffer), .done = {}, .accumulate = {}, .update = {}, .arrivals = {}});
    ASSIGN_OR_RETURN(lane.done, device.NewEvent());
    const auto graph = [&](StepGraph::Work work) {
      return std::make_unique<StepGraph>(stream, std::move(work), replay);
    };
    using Between = StepGraph::Between;
    TrainingStep* const self = step.get();
    const auto iteration = [&](const Model::TurnNets::BoundNet& of) {
      return graph([self, index, &of](const Between& between) {
        return self->Enqueue(index, *of.net, between,
                             EnterSteps(of.pager.get(), self->stream_, between));
      });
    };
    lane.accumulate = iteration(step->turn_.first());
    lane.update = iteration(step->turn_.last);
    const std::vector<InstructionKind>& on_arrival = net.plan().trace.on_arrival;
    const int buckets = static_cast<int>(net.plan().order.buckets.size());
    for (int b = 0; !on_arrival.empty() && b < buckets; ++b) {
      lane.arrivals.push_back(graph([self, index, b, &on_arrival](const Between& between) {
        for (const InstructionKind kind : on_arrival) {
          RETURN_IF_ERROR(self->Do(index, self->turn_.net(), Net::kHome, {kind, b}, between));
        }
        return absl::OkStatus();
      }));
    }
  }
  return step;
}

absl::Status TrainingStep::SetLossScale(const LossScaleState& state) {
  GYRE_CHECK(in_flight_ == 0);
  loss_scale_ = state;
  exchange_->SetLossScale(state);
  return gate_.loss_scale ? gyre::SetLossScale(stream_, state, gate_.loss_scale) : absl::OkStatus();
}

void TrainingStep::SetGroups(const std::map<int64_t, int64_t>& skipped_before) {
  const std::vector<int64_t>& from = model_.plan().options.shape.trainable_from;
  groups_ = {.count = static_cast<int>(from.size())};
  for (size_t g = 0; g < from.size(); ++g) {
    const auto skipped = skipped_before.find(from[g]);
    const int64_t before = skipped == skipped_before.end() ? 0 : skipped->second;
    groups_.first_update[g] = static_cast<double>(from[g] - before);
  }
  exchange_->SetGroups(groups_);
}

size_t TrainingStep::graph_nodes() const {
  size_t nodes = lanes_[0].update->nodes();
  for (const auto& arrival : lanes_[0].arrivals) nodes += arrival->nodes();
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
  const Net& net = turn_.net();
  std::vector<double> at_positions(net.plan().paging->order.size());
  RETURN_IF_ERROR(Start(batch, step, learning_rate, [&](StepLane&) {
    const StepGraph::Between at_once = [](const StepGraph::Action& action) { return action(); };
    return Enqueue(next_, net, at_once, TimeSteps(*turn_.pager(), stream_, at_positions));
  }));
  std::vector<double> seconds(net.plan().trace.trace.steps.size());
  for (size_t s = 0; s < seconds.size(); ++s) {
    seconds[s] = at_positions[net.At(static_cast<int>(s))];
  }
  return seconds;
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
  RETURN_IF_ERROR(exchange_->Start(step));
  updates_[next_] = {.learning_rate = learning_rate.value_or(0),
                     .gradient_scale = 1 / loss_scale,
                     .groups = groups_,
                     .logs_norms = model_.plan().options.shape.LogsNorms(step + 1)};
  optimizer_.Prepare(static_cast<uint64_t>(model_.plan().options.shape.TurnAt(step).step),
                     updates_[next_]);
  lane.buffer.Set({number, static_cast<uint64_t>(batch.first_position)}, updates_, loss_scale,
                  /*first_batch=*/batch_ == 0);
  lane.updating = learning_rate.has_value();
  lane.bad_bucket.reset();
  lane.batch = batch;
  const auto& of = lane.updating ? turn_.last : turn_.first();
  if (Pager* const next = of.pager.get(); next != pager_) {
    RETURN_IF_ERROR(pager_->HandOver(*next, stream_));
    pager_ = next;
  }
  RETURN_IF_ERROR(upload_.Start(next_, batch, stream_));
  const Net& net = turn_.net();
  RETURN_IF_ERROR(net.FetchCarried(stream_, batch_));
  RETURN_IF_ERROR(enqueue(lane));
  RETURN_IF_ERROR(net.StoreCarried(stream_, batch_));
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
  if (summing_ == index) RETURN_IF_ERROR(exchange_->TakeSums());
  if (gates_alone() && !model_.plan().options.shape.works()) return lane.buffer.metrics();
  const GradientReport& found = lane.buffer.gradients();
  const int64_t bad_bucket = lane.bad_bucket.value_or(found.bad_bucket);
  skipped_ = bad_bucket >= 0 && gate_.loss_scale && found.loss_scale.scale >= kLeastLossScale;
  diverged_ = bad_bucket >= 0 && !skipped_;
  if (diverged_) return NotFinite(bad_bucket);
  if (lane.updating && gate_.loss_scale) loss_scale_ = found.loss_scale;
  return lane.buffer.metrics();
}

// Enqueues all of an iteration that is the same each time.
absl::Status TrainingStep::Enqueue(int index, const Net& net, const StepGraph::Between& between,
                                   const Net::Enter& enter) {
  const TimelineLabel label("step");
  const auto sum = [&](Stream&, absl::string_view label, Tensor statistic) {
    if (communication_.size() == 1) return absl::OkStatus();
    return between([this, label = std::string(label), statistic] {
      return sum_statistic_(stream_, label, statistic);
    });
  };
  const auto other = [&](int step, const Instruction& instruction) {
    return Do(index, net, step, instruction, between);
  };
  return net.Run(stream_, sum, other, enter);
}

absl::Status TrainingStep::Do(int lane, const Net& net, int step, const Instruction& instruction,
                              const StepGraph::Between& between) {
  const int b = instruction.of;
  const StepBuffer& buffer = lanes_[lane].buffer;
  StepScalars* const block = net.step_scalars();
  const Tensor sums = net.sums();
  switch (instruction.kind) {
    case InstructionKind::kUpload:
      RETURN_IF_ERROR(buffer.Upload(stream_));
      if (model_.turns() > 1) RETURN_IF_ERROR(Fill(stream_, 0, sums));  // of others' buckets
      return upload_.Deliver(lane, stream_, net);
    case InstructionKind::kAwait:
      return between([this, b] { return exchange_->Await(b); });
    case InstructionKind::kMeasure:
      return Measure(net, step, b);
    case InstructionKind::kScale:
      return ScaleOrSpoil(stream_, net.bucket(b, step), &block->updates[lane], &block->gradients);
    case InstructionKind::kBegin:
      RETURN_IF_ERROR(net.ClearPadding(stream_, b, step));
      return between([this, lane, b] {
        summing_ = lane;
        return exchange_->Begin(b);
      });
    case InstructionKind::kPoll:
      return between([this] { return exchange_->Poll(); });
    case InstructionKind::kFinish:
      return between([this, b] { return exchange_->Finish(b); });
    case InstructionKind::kMeasureGradient:
    case InstructionKind::kMeasureChange:
    case InstructionKind::kUpdate:
      return Update(lane, step, instruction, between);
    case InstructionKind::kGather:
      return Gather(step, b, between);
    case InstructionKind::kReceive:
      return between([this, b] { return exchange_->Receive(b); });
    case InstructionKind::kTakeValues:
      return TakeValues(b);
    case InstructionKind::kAddNorms:
      return between([this] { return exchange_->AddNorms(); });
    case InstructionKind::kAddChanges:
      return between([this] {
        const Net& all = turn_.net();
        return SumOwnChanges(all.plan(), communication_, stream_, all.norms());
      });
    case InstructionKind::kUploadNorms:
      return exchange_->UploadNorms();
    case InstructionKind::kGate:
      return PassGate(stream_, gate_, sums.as<double>(), static_cast<int>(sums.elements()),
                      &block->updates[lane], block);
    case InstructionKind::kClock:
      return between([this, update = &block->updates[lane], report = &block->gradients] {
        return exchange_->Clock(update, report);
      });
    case InstructionKind::kReport:
      return buffer.Download(stream_);
    default:
      return absl::InternalError("the instruction is a net's");
  }
}

absl::Status TrainingStep::Measure(const Net& net, int step, int bucket) {
  RETURN_IF_ERROR(net.ClearPadding(stream_, bucket, step));
  const TouchedTable* const table = TableOf(net.plan(), bucket);
  if (table != nullptr && communication_.size() == 1) {
    const Net::TableTensors rows = net.table(*table);
    RETURN_IF_ERROR(NameRows(stream_, rows.kept, rows.first, rows.rows));
  }
  return SumSquares(stream_, net.bucket(bucket, step), net.sums_scratch(),
                    net.sums().as<double>() + bucket);
}

absl::Status TrainingStep::Update(int lane, int step, const Instruction& instruction,
                                  const StepGraph::Between& between) {
  const auto [kind, bucket, tile] = instruction;
  const Net& net = turn_.net();
  if (tile >= net.tiles(bucket)) return absl::OkStatus();  // nothing pages: the first did all
  if (!net.OnHost(step)) return UpdateTile(lane, step, instruction);
  return between([this, lane, step, bucket, tile, position = net.At(step)] {
    const TimelineLabel label("update");
    return turn_.pager()->RunOnHost(position, HostUpdate(lane, step, bucket, tile));
  });
}

absl::Status TrainingStep::Gather(int step, int bucket, const StepGraph::Between& between) {
  const Net& net = turn_.net();
  if (!model_.one_copy()) {
    const ElementRange own = UpdatedShard(net.plan(), bucket);
    RETURN_IF_ERROR(net.PackParameters(stream_, model_.plan().parameters, bucket, own,
                                       Slice(net.summed(bucket), own.begin, own.count()), step));
  }
  return between([this, bucket] { return exchange_->Gather(bucket); });
}

absl::Status TrainingStep::TakeIn(int bucket, double squares) {
  StepLane& lane = lanes_[summing_];
  if (!std::isfinite(squares)) lane.bad_bucket = std::min(bucket, lane.bad_bucket.value_or(bucket));
  return lane.arrivals[bucket]->Run();
}

BucketViews TrainingStep::ViewsOf(int step, int bucket, int tile) const {
  const Net& net = turn_.net();
  const NetPlan& plan = net.plan();
  const ParameterSet& parameters = model_.plan().parameters;
  const ElementRange own = UpdatedShard(plan, bucket), of_own = net.tile(bucket, tile);
  const ElementRange part = {own.begin + of_own.begin, std::min(own.end, own.begin + of_own.end)};
  const Tensor gradients = net.summed(bucket, step);
  const auto value = [&](const ParameterRange& of) {
    return Slice(net.parameter(of.parameter, parameters, step), of.begin, of.count);
  };
  const auto gradient = [&](const ParameterRange& of) { return Slice(gradients, of.at, of.count); };
  const auto slot = [&](int array, const ParameterRange& of) {
    return Slice(net.slot(bucket, array, tile, step), of.at - part.begin, of.count);
  };
  BucketViews views = ViewsIn(plan, parameters, bucket, part, {value, gradient, slot, net.norms()});
  const TouchedTable* const table = TableOf(plan, bucket);
  if (table == nullptr || views.parameters.empty()) return views;
  const StateSpec& spec = parameters.all()[table->parameter].spec;
  if (!spec.lazy && !optimizer_.leaves_untouched(spec.decay_multiplier)) return views;
  int64_t begin = part.begin;  // several views where norms are measured by pieces
  for (ParameterViews& view : views.parameters) {
    view.rows = net.table(*table).rows;
    view.width = table->width;
    view.begin = begin;
    begin += view.value.elements();
  }
  return views;
}

absl::Status TrainingStep::UpdateTile(int lane, int step, const Instruction& instruction) {
  const TimelineLabel label("update");
  const auto [kind, bucket, tile] = instruction;
  const Net& net = turn_.net();
  RETURN_IF_ERROR(exchange_->Bring(bucket, net.summed(bucket, step)));
  const BucketViews all = ViewsOf(step, bucket, tile);
  const UpdateScalars* const scalars = &net.step_scalars()->updates[lane];
  switch (kind) {
    case InstructionKind::kMeasureGradient:
      return MeasureGradients(stream_, scalars, all.parameters);
    case InstructionKind::kMeasureChange:
      return optimizer_.Measure(stream_, scalars, all.parameters);
    default:
      return optimizer_.Update(stream_, scalars, all.parameters);
  }
}

absl::StatusOr<std::vector<double>> TrainingStep::GradientSquares() {
  const NetPlan& plan = turn_.net().plan();
  std::vector<double> squares(plan.pieces.count);
  if (!plan.spec.shape.LogsGradients()) return squares;
  RETURN_IF_ERROR(stream_.Copy(squares.data(), LoggedSquares(plan.pieces, turn_.net().norms()),
                               squares.size() * sizeof(double)));
  RETURN_IF_ERROR(stream_.Synchronize());
  RETURN_IF_ERROR(SumOwnPieces("norms of gradients", plan, communication_, squares));
  return squares;
}

// The result may run when the lane already has the next iteration's scalars, and after `this` is
// gone.
std::function<absl::Status()> TrainingStep::HostUpdate(int lane, int step, int bucket,
                                                       int tile) const {
  return
      [&optimizer = optimizer_, host = host_, scalars = updates_[lane],
       all = std::make_shared<const BucketViews>(ViewsOf(step, bucket, tile))]() -> absl::Status {
        // Made here, as a stream belongs to one thread.
        ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, host->NewStream());
        return optimizer.Update(*stream, &scalars, all->parameters);
      };
}

absl::Status TrainingStep::TakeValues(int bucket) {
  if (model_.one_copy()) return absl::OkStatus();
  const bool in_update = turn_.net().plan().trace.buckets[bucket].values >= 0;
  const Net& net = in_update ? turn_.net() : *turn_.first().net;
  const int step = net.plan().trace.buckets[bucket].values;
  const ElementRange own = exchange_->updated(bucket);
  const Tensor values = net.summed(bucket);
  for (const auto& [begin, end] : {ElementRange{0, own.begin}, {own.end, values.elements()}}) {
    RETURN_IF_ERROR(net.UnpackParameters(stream_, model_.plan().parameters, bucket, {begin, end},
                                         Slice(values, begin, end - begin), step));
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::NotFinite(int64_t bucket) const {
  const std::string names = absl::StrJoin(
      NamesIn(turn_.net().plan().order, model_.plan().parameters, static_cast<int>(bucket)), ", ");
  // Squares of F32 do not overflow the double that adds them.
  const bool may_be_large = model_.plan().options.shape.compute == DType::kF64;
  const bool scaled = !gate_.loss_scale && model_.plan().options.shape.loss_scale.initial > 1;
  return absl::InternalError(absl::StrCat(
      "a gradient is not finite", may_be_large ? ", or beyond 1e154" : "",
      gate_.loss_scale ? ", of however small a loss scale" : "", ": one of ", names, "; ",
      scaled ? "lower loss_scale.fixed, or give loss_scale.dynamic; or " : "", kDivergenceAdvice));
}

}  // namespace gyre
