// net.h: a planned net bound to memory, ready to run.
//
// Forward and Backward enqueue the layers' work on a stream, in the plan's order, and return.  Used
// by one thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/training/net/net_plan.h"
#include "engine/training/step_block.h"

namespace gyre {

class Net {
 public:
  // plan and the arenas must outlive the net.  communication_arena may be null if plan does not
  // train.  parameters: in place of the device arena's first bytes, which are those of the
  // parameters that no layer writes.
  Net(const NetPlan& plan, std::byte* device_arena, std::byte* communication_arena,
      std::span<std::byte> parameters = {});

  const NetPlan& plan() const { return plan_; }

  // Sums a statistic (device memory) over all ranks; what it enqueues precedes what comes after.
  using SumStatistic = std::function<absl::Status(Stream&, absl::string_view label, Tensor)>;
  // Calls bucket_needed(b), the last bucket first, before work that reads a parameter of bucket b
  // is enqueued.  Errors: those of the layers, with the layer's name.
  using BucketNeeded = std::function<absl::Status(int bucket)>;
  absl::Status Forward(Stream& stream, const SumStatistic& sum,
                       const BucketNeeded& bucket_needed = nullptr) const;

  // Calls bucket_ready(b) once the work that finishes bucket b's gradients is on the stream.  No
  // later work of this pass reads its parameters.
  using BucketReady = std::function<absl::Status(int bucket)>;
  absl::Status Backward(Stream& stream, const SumStatistic& sum,
                        const BucketReady& bucket_ready) const;

  // What is carried from batch to batch; of a training net, from step to step.  Forward, or
  // Backward of layers that take part in it, leaves what the next batch finds.
  struct Carried {
    std::string name;  // LAYER.STATE
    Tensor rows;       // of this rank and one batch, in device memory
    int batch_axis;    // along which they lie
    int64_t first;     // number of the first, of all_rows
    int64_t all_rows;  // samples of a step, over all ranks
  };
  // Of each state, of each batch of a step.
  std::vector<Carried> carried() const;
  absl::Status ClearCarried(Stream& stream) const;
  // Of a training net whose steps are several batches: around the work of a step's batch number
  // `batch`, from 0, what was left by that batch of the step before, and what it leaves.  Of others
  // nothing.
  absl::Status BringCarried(Stream& stream, int64_t batch) const;
  absl::Status KeepCarried(Stream& stream, int64_t batch) const;

  // Views into the arenas.
  Tensor input(int index) const;  // net input
  // Storage elements, flat, of a parameter of `set`, its gradient.
  Tensor parameter(int index, const ParameterSet& set) const;
  Tensor gradient(int index, const ParameterSet& set) const;
  Tensor bucket(int index) const;  // all its gradients and the padding between
  // Of what this rank updates; `master` is null where the values themselves are.
  Tensor slot(int bucket, int kind) const;
  Tensor master(int bucket) const;
  // Of a table of the plan: flat, as TableStates says; null where there is no such state.
  struct Table {
    Tensor kept, first, rows, names, values;
  };
  Table table(const TouchedTable& of) const;
  Tensor pixel_values(int input) const;  // [256 a channel or in all]; [0] if values come
  std::byte* step() const;               // the first of them, or the block
  StepBlock* step_block() const;         // right behind them
  LossScaleState* loss_scale() const;    // null: it is not dynamic, and in the block
  Tensor metrics() const;                // behind the block; F64 {sum, count} of each of MetricsOf
  Tensor records(int node) const;        // behind these; null of a layer that has none
  Tensor sums() const;                   // F64, one a bucket: the sum of its gradients' squares
  void* sums_scratch() const;            // kSumSquaresScratchBytes
  Tensor whole_ahead(int lane) const;    // U8: all bytes of a batch
  Tensor ahead(int lane, int input) const;  // an array of it

 private:
  struct Bound {
    std::vector<Tensor> forward, backward, recompute, gradients;  // by state
  };
  enum class Pass { kForward, kBackward, kRecompute };
  std::byte* Address(int state) const;
  Tensor Flat(int state, const Parameter& parameter) const;
  absl::Status RunLayer(Stream& stream, int node, Pass pass, const SumStatistic& sum) const;
  absl::Status Carry(Stream& stream, int node) const;
  absl::Status KeepTouched(Stream& stream, int node) const;
  std::byte* Home(size_t carried, int64_t batch) const;
  absl::Status Sum(Stream& stream, std::span<const GradientSum> sums) const;
  absl::Status SeedLosses(Stream& stream) const;

  const NetPlan& plan_;
  std::byte* device_arena_;
  std::byte* communication_arena_;
  std::span<std::byte> parameters_;
  std::vector<Bound> nodes_;
  const std::vector<CarriedState> carried_;
};

}  // namespace gyre
