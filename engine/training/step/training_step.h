// training_step.h: one iteration of training, as the data travels: upload, forward, backward with
// each bucket's reduction under the rest of it, clipping, the optimizer.
//
// An iteration is enqueued whole, and its result is looked at later, so that a device never waits
// for the host; from the third of a lane on it is replayed.  They take turns between two lanes,
// each with memory of its own for what comes in and goes out.  A step is one iteration, or as many
// as RunShape::accumulate says: all add to the mean of their gradients, and the last of them sums
// this over the ranks and updates.  Used by the thread that made it.
//
// Ranks that clip or may skip the step, which needs all sums (UpdateGate), update at the end of the
// iteration.  Else one rank updates each bucket right behind the backward that completes it, where
// the plan has that on the host in pages, beside what follows; and several do so when its sum is
// found to have come: as the next buckets are started, or in a wait: for what the next iteration's
// forward first reads, or Finish's.  Where nets page, updates have fixed places in the trace, and
// wait for their sums there.  Ranks that share out the optimizer each update their part of a bucket
// at the end of the iteration, and take the others' parts as late: all ranks must ask for these in
// the same order.  With a parameter server owners update on their own, and a rank takes what comes
// of it as late.
#pragma once

#include <memory>
#include <optional>

#include "engine/training/optimizers/optimizer.h"
#include "engine/training/step/evaluation.h"
#include "engine/training/step/gradient_sync.h"
#include "engine/training/step/input_upload.h"
#include "engine/training/step/server_sync.h"
#include "engine/training/step/step_buffer.h"
#include "engine/training/step/step_graph.h"
#include "engine/training/step/update_gate.h"

namespace gyre {

// What to do about numbers that are not finite.
inline constexpr char kDivergenceAdvice[] =
    "lower learning_rate.base, warm up, or set optimizer.clip_norm";

class TrainingStep {
 public:
  // replay: false to enqueue each step anew, for comparison.  learning_rate: with a parameter
  // server alone, in place of Start's.  All arguments outlive the result;
  // `stream` belongs to the calling thread.  Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<TrainingStep>> Create(
      const Model& model, const Optimizer& optimizer, Device& device, Stream& stream,
      ProcessGroup& communication, bool replay = true,
      const ServerSync::LearningRate& learning_rate = nullptr);
  ~TrainingStep() { (void)stream_.Synchronize(); }  // steps in flight touch its memory

  // A dynamic loss scale, as the last update that is finished leaves it: initially as the model's
  // shape has it, without steps.  To be set where a run goes on, before anything is in flight.
  absl::Status SetLossScale(const LossScaleState& state);
  const LossScaleState& loss_scale() const { return loss_scale_; }

  // Enqueues an iteration of step number `step`, from 0.  Waits for sums of the iteration before,
  // as its parameters are needed, and for its own with clipping, a dynamic loss scale or a sharded
  // optimizer.
  // learning_rate: none where another batch of the step follows. The batch's memory must stay until
  // the iteration is finished.  Precondition: fewer than kMostStepsInFlight in flight.  Errors:
  // those of layers and ranks.
  absl::Status Start(const Batch& batch, int64_t step, std::optional<double> learning_rate);
  // Likewise of one rank whose model pages, and an iteration that updates: its steps one by one.
  // Returns what each took, in seconds, by step of the trace.
  absl::StatusOr<std::vector<double>> StartTimed(const Batch& batch, int64_t step,
                                                 double learning_rate);
  // In place of it on a rank of a parameter server that runs no batch: of a step that updates.
  // Errors: those of ranks; Internal for a gradient that is not finite, as Finish's.
  absl::Status StartServing(int64_t step);
  int in_flight() const { return in_flight_; }
  // With none in flight, after the same step on all ranks: with a parameter server, gives all ranks
  // all parameters as they are now; and ends it.  Errors: those of ranks.
  absl::Status Settle();
  absl::Status Stop();
  // In place of these where all ranks have found a number that is not finite.
  absl::Status Abandon() {
    return served() && server_->begun() ? server_->Abandon() : absl::OkStatus();
  }
  // Of the graphs that replay a step on a GPU; 0: none do.
  size_t graph_nodes() const;
  // Why steps are not replayed, if the device could not capture them; else OK.
  const absl::Status& refusal() const { return lanes_[0].update->refusal(); }

  // Waits for the earliest one in flight, its sums included.  Returns its metrics on this rank, F64
  // {sum, count} for each of MetricsOf, valid until the next Start.  The stream has its updates,
  // even where a gradient is not finite.  Errors: those of ranks; InvalidArgument for bad data,
  // naming layer and sample; Internal for a gradient that is not finite, naming the parameters of
  // its bucket, unless a lower loss scale may help: then the update has been skipped.
  absl::StatusOr<Tensor> Finish();
  // Finish, or StartServing, has found a gradient that is not finite: so it has on every rank.
  bool diverged() const { return diverged_ && !gates_alone(); }
  // Finish has found an update that is skipped: by all ranks, or, with a server that is not in bsp,
  // by this one.
  bool skipped() const { return skipped_; }

 private:
  struct StepLane {
    StepBuffer buffer;
    std::unique_ptr<Event> done;
    std::unique_ptr<StepGraph> accumulate, update;
    std::vector<std::unique_ptr<StepGraph>> updates;  // if defers(): by bucket
    std::optional<int> bad_bucket = {};               // likewise: the first
    bool updating = false;                            // the iteration ends its step
    Batch batch = {};
  };

  TrainingStep(const Model& model, const Optimizer& optimizer, const UpdateGate& gate,
               Device& device, Stream& stream, ProcessGroup& communication, InputUpload upload)
      : model_(model),
        optimizer_(optimizer),
        gate_(gate),
        stream_(stream),
        host_(NewCpuDevice({.threads = model.plan().options.threads})),
        communication_(communication),
        sum_statistic_(StatisticSummer(device, communication)),
        upload_(std::move(upload)),
        pager_(model.train_pager()) {}

  bool sharded() const { return model_.plan().options.shape.shard_optimizer; }
  bool served() const { return server_ != nullptr; }
  bool gates_alone() const { return model_.plan().options.shape.gates_alone(); }
  // Where steps are paged, the update has its place in their order.
  bool updates_on_arrival() const {
    return !sync_->on_stream() && !gate_.holds() && !sharded() && !model_.plan().pages();
  }
  // Whether something is left to do about a bucket when the iteration has been enqueued.
  bool defers() const { return updates_on_arrival() || sharded(); }
  absl::Status Start(const Batch& batch, int64_t step, std::optional<double> learning_rate,
                     const std::function<absl::Status(StepLane&)>& enqueue);
  absl::Status Enqueue(int lane, bool update, const StepGraph::Between& between,
                       const Net::Enter& enter);
  absl::Status Ready(int lane, int bucket, const StepGraph::Between& between,
                     const Net::Enter& enter);
  absl::Status EnterUpdate(int lane, int bucket, const StepGraph::Between& between,
                           const Net::Enter& enter);
  absl::Status Update(int lane, const StepGraph::Between& between, const Net::Enter& enter);
  // A bucket's update in its place among the steps, where the plan has it.
  absl::Status RunUpdate(int lane, int bucket, const StepGraph::Between& between,
                         const Net::Enter& enter);
  // What this rank updates of a bucket in one of its tiles.
  struct BucketViews {
    std::vector<Tensor> slots;  // that the parameters' lie in
    std::vector<ParameterViews> parameters;
  };
  BucketViews ViewsOf(int bucket, int tile) const;
  absl::Status UpdateTile(int lane, int bucket, int tile);
  std::function<absl::Status()> HostUpdate(int lane, int bucket, int tile) const;
  absl::Status TakeValues(int bucket);
  // With a server: a bucket whose gradients are on the stream, and how it leaves; the rest of an
  // iteration that updates.
  absl::Status ReadyToServe(int bucket, const StepGraph::Between& between, const Net::Enter& enter);
  absl::Status Push(int bucket, const StepGraph::Between& between);
  absl::Status EndStep(int lane, const StepGraph::Between& between, const Net::Enter& enter);
  absl::Status StartSum(int lane, int bucket);
  absl::Status FinishSum(int bucket);
  absl::Status TakeArrived();
  absl::Status Take(int bucket);
  absl::Status NotFinite(int64_t bucket) const;

  const Model& model_;
  const Optimizer& optimizer_;
  const UpdateGate gate_;
  Stream& stream_;
  const std::shared_ptr<Device> host_;  // of updates there
  ProcessGroup& communication_;
  const Net::SumStatistic sum_statistic_;
  InputUpload upload_;
  std::unique_ptr<GradientSync> sync_;  // with a server: of no buckets
  std::unique_ptr<ServerSync> server_;  // null: none
  std::vector<StepLane> lanes_;
  Pager* pager_;                                           // of the last iteration; null: none
  std::array<UpdateScalars, kMostStepsInFlight> updates_;  // by lane
  int summing_ = 0;                                        // the lane whose sums are under way
  int next_ = 0;                                           // lane
  int64_t batch_ = 0;                                      // of a step: the next one's number
  int in_flight_ = 0;
  bool diverged_ = false, skipped_ = false;
  LossScaleState loss_scale_;  // of the last update finished
};

}  // namespace gyre
