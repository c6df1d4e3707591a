// training_step.h: one training iteration, from upload to update.  Used by the thread that made it.
//
// Start enqueues an iteration and Finish reads its result later, so the device never waits.
// Terms:
//   iteration  one pass of this rank over one batch
//   step       RunShape::accumulate iterations, whose mean gradient the last one sums and applies
//   lane       what one iteration in flight uses: buffers, device memory and graphs
//
// When a bucket is updated.  The first row that applies:
//   parameter server               by its owner; new values come before the next forward reads them
//   sharded optimizer              after backward, each rank its own shard of the bucket
//   clip_norm, dynamic loss scale  after backward, when all sums are known (UpdateGate)
//   one rank                       after the backward that completes it, on the device or the host
//   several ranks, paged           at a fixed step of the trace, which waits for the sum
//   several ranks                  when its sum arrives, before the next forward reads its values
// A sharded optimizer clips before it updates.  All ranks request the other shards in one order.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "engine/training/optimizers/optimizer.h"
#include "engine/training/step/bucket_exchange.h"
#include "engine/training/step/bucket_views.h"
#include "engine/training/step/evaluation.h"
#include "engine/training/step/input_upload.h"
#include "engine/training/step/step_buffer.h"
#include "engine/training/step/step_graph.h"
#include "engine/training/step/update_gate.h"

namespace gyre {

inline constexpr char kDivergenceAdvice[] =
    "lower learning_rate.base, warm up, or set optimizer.clip_norm";

class TrainingStep {
 public:
  // Without `replay` each iteration is enqueued anew.  Only a parameter server uses
  // `learning_rate`.  All arguments outlive the result.  Errors: those of allocation.
  // `player`: of steps in its turn.
  static absl::StatusOr<std::unique_ptr<TrainingStep>> Create(
      const Model& model, const Optimizer& optimizer, Device& device, Stream& stream,
      ProcessGroup& communication, bool replay = true, const RateOfStep& learning_rate = nullptr,
      int player = 0);
  ~TrainingStep() { (void)stream_.Synchronize(); }  // steps in flight touch its memory

  // Sets a dynamic loss scale where a run resumes.  Precondition: nothing is in flight.
  absl::Status SetLossScale(const LossScaleState& state);
  // Likewise, the updates that a dynamic loss scale skipped before a step of
  // RunShape::trainable_from, by that step.  Those that are not there count as 0.
  void SetGroups(const std::map<int64_t, int64_t>& skipped_before);
  // The scale after the last update that Finish returned.  Initially that of the model's shape.
  const LossScaleState& loss_scale() const { return loss_scale_; }

  // Enqueues an iteration of step number `step`, from 0.  The batch, which is empty on a rank that
  // only owns, stays in memory until its Finish.  `learning_rate` is none if another batch of the
  // step follows.  Blocks for the previous iteration's sums, or the server's values, when forward
  // needs the parameters.  Blocks for its own sums with clipping, a dynamic loss scale, a sharded
  // optimizer or paging. Precondition: fewer than kMostStepsInFlight in flight.  Errors: those of
  // layers and ranks.
  absl::Status Start(const Batch& batch, int64_t step, std::optional<double> learning_rate);
  // Start, with a pause after each step of the trace.  Returns the seconds of each of these steps.
  // Precondition: one rank, a paged model, an iteration that updates.
  absl::StatusOr<std::vector<double>> StartTimed(const Batch& batch, int64_t step,
                                                 double learning_rate);
  int in_flight() const { return in_flight_; }
  // The exchange's, with nothing in flight.
  absl::Status Settle() { return exchange_->Settle(); }
  absl::Status Stop() { return exchange_->Stop(); }
  absl::Status Abandon() { return exchange_->Abandon(); }
  // After a step whose norms are logged, Finish and Settle: the squares of its gradients as updates
  // took them, by piece (ParameterPieces).  All ranks call it.  Empty if no rank adds up gradients.
  absl::StatusOr<std::vector<double>> GradientSquares();
  // Nodes of a GPU's graphs, or 0 if no graph replays a step.
  size_t graph_nodes() const;
  // The reason if the device could not capture a step, else OK.
  const absl::Status& refusal() const { return lanes_[0].update->refusal(); }

  // Blocks until the earliest iteration in flight is over, its sums included.  The stream has its
  // updates, even if a gradient is not finite.  Returns this rank's metrics, F64 {sum, count} for
  // each of MetricsOf, valid until the next Start.  They mean nothing where no net ran.
  // Errors: those of ranks.  InvalidArgument for bad data, naming layer and sample.  Internal for a
  // gradient that is not finite, naming its bucket's parameters.  If a lower loss scale may help,
  // the update is skipped instead.
  absl::StatusOr<Tensor> Finish();
  // Whether Finish found a gradient that is not finite, as every rank then does.
  bool diverged() const { return diverged_ && !gates_alone(); }
  // Whether Finish found a skipped update.  Ranks skip alone only with a server that is not in bsp.
  bool skipped() const { return skipped_; }

 private:
  struct StepLane {
    StepBuffer buffer;
    std::unique_ptr<Event> done;
    std::unique_ptr<StepGraph> accumulate, update;
    std::vector<std::unique_ptr<StepGraph>> arrivals;  // by bucket, if NetTrace::on_arrival
    std::optional<int> bad_bucket = {};                // the first one that has arrived
    bool updating = false;                             // the iteration is its step's last
    Batch batch = {};
  };

  TrainingStep(const Model& model, int player, const Optimizer& optimizer, const UpdateGate& gate,
               Device& device, Stream& stream, ProcessGroup& communication, InputUpload upload)
      : model_(model),
        turn_(model.turn(player)),
        optimizer_(optimizer),
        gate_(gate),
        stream_(stream),
        host_(NewCpuDevice({.threads = model.plan().options.pages.threads})),
        communication_(communication),
        sum_statistic_(StatisticSummer(device, communication)),
        upload_(std::move(upload)),
        pager_(turn_.pager()) {}

  bool gates_alone() const { return model_.plan().options.shape.gates_alone(); }
  absl::Status Start(const Batch& batch, int64_t step, std::optional<double> learning_rate,
                     const std::function<absl::Status(StepLane&)>& enqueue);
  absl::Status Enqueue(int lane, const Net& net, const StepGraph::Between& between,
                       const Net::Enter& enter);
  // Does what a step of the net's program asks of an iteration in a lane.
  absl::Status Do(int lane, const Net& net, int step, const Instruction& instruction,
                  const StepGraph::Between& between);
  absl::Status Measure(const Net& net, int step, int bucket);
  absl::Status Update(int lane, int step, const Instruction& instruction,
                      const StepGraph::Between& between);
  absl::Status Gather(int step, int bucket, const StepGraph::Between& between);
  BucketViews ViewsOf(int step, int bucket, int tile) const;
  absl::Status UpdateTile(int lane, int step, const Instruction& instruction);
  std::function<absl::Status()> HostUpdate(int lane, int step, int bucket, int tile) const;
  absl::Status TakeValues(int bucket);
  absl::Status TakeIn(int bucket, double squares);
  absl::Status NotFinite(int64_t bucket) const;

  const Model& model_;
  const Model::TurnNets& turn_;
  const Optimizer& optimizer_;
  const UpdateGate gate_;
  Stream& stream_;
  const std::shared_ptr<Device> host_;  // for updates on the host
  ProcessGroup& communication_;
  const Net::SumStatistic sum_statistic_;
  InputUpload upload_;
  std::unique_ptr<BucketExchange> exchange_;
  std::vector<StepLane> lanes_;
  Pager* pager_;  // the last iteration's; null: nothing pages
  std::array<UpdateScalars, kMostStepsInFlight> updates_;  // by lane
  int summing_ = 0;                                        // lane whose sums are in progress
  int next_ = 0;                                           // lane
  int64_t batch_ = 0;                                      // number of the step's next batch
  int in_flight_ = 0;
  bool diverged_ = false, skipped_ = false;
  LossScaleState loss_scale_;  // after the last finished update
  UpdateGroups groups_;
};

}  // namespace gyre
