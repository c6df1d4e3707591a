// step_bench.h: times training steps of one net on one device, with random numbers and labels, next
// to the device's peaks.  Used by one thread at a time.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/training/step/training_step.h"
#include "tools/bench/device_peaks.h"
#include "tools/command_line/devices.h"

namespace gyre {

struct StepBenchOptions {
  DeviceFlags device;
  DType compute = DType::kF32;
  int64_t batch = 64;              // over all ranks
  bool replay = true;              // false: each step is enqueued anew
  std::string allreduce = "ring";  // of `communication`
  bool shard_optimizer = false;
  // Used if device.memory does not hold all.
  PlannerKind planner = PlannerKind::kAuto;
};

class StepBench {
 public:
  // net, the device and communication must outlive the result.  Several ranks sum in this device's
  // memory, so the device must outlive communication.  Errors: those of planning and of ranks.
  static absl::StatusOr<std::unique_ptr<StepBench>> Create(const Parsed<NetConfig>& net,
                                                           const StepBenchOptions& options,
                                                           const DeviceChoice& choice,
                                                           ProcessGroup& communication);

  // All ranks at once.  Measures the peaks, then `steps` steps, which end before the clock stops.
  absl::Status Round(int steps);
  // The digest that `train` prints, after all steps so far.  Precondition: one rank.
  absl::StatusOr<std::string> Sha256OfWeights() { return model_->Sha256OfWeights(*stream_); }
  // Drops the rounds so far, as a warm-up.
  void Forget() { rounds_.clear(); }
  // Medians over the rounds.  Precondition: there is a round.
  nlohmann::ordered_json Report() const;

 private:
  struct MeasuredRound {
    double step_seconds = 0;
    DevicePeaks::Rates peaks;  // 0 where memory is bounded
  };

  StepBench(const Parsed<NetConfig>& net, const StepBenchOptions& options,
            const DeviceChoice& choice, ProcessGroup& communication)
      : net_(net), options_(options), choice_(choice), communication_(communication) {}
  absl::Status CreateModel();
  absl::Status CreateStep();
  absl::Status PlanPagesAnew();
  absl::Status CreateBatch(const NetPlan& plan);
  absl::Status Step();

  const Parsed<NetConfig>& net_;
  const StepBenchOptions options_;
  const DeviceChoice& choice_;
  ProcessGroup& communication_;
  std::unique_ptr<Stream> stream_, turn_;
  Buffer batch_memory_;
  Batch batch_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<DevicePeaks> peaks_;  // null where memory is bounded and has no room for them
  double flops_ = 0;                    // of a step
  int64_t steps_ = 0;
  double initialize_seconds_ = 0;
  size_t resident_growth_ = 0;
  std::vector<MeasuredRound> rounds_;
};

}  // namespace gyre
