// net.h: a planned net bound to memory, ready to run.
//
// Forward and Backward enqueue the layers' work on a stream, in the plan's order, and return.  Used
// by one thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/training/net/plan/net_plan.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// Where a net's plan is bound to.
struct NetMemory {
  std::byte* device = nullptr;         // arenas
  std::byte* communication = nullptr;  // may be null if the plan does not train
  std::byte* pages = nullptr;          // of a plan that pages
  std::byte* file_homes = nullptr;     // of one that pages to disk, too: the file's mapping
  // In place of the device arena's first bytes, which are those of the parameters that no layer
  // writes; of a plan that does not page.
  std::span<std::byte> parameters = {};
};

class Net {
 public:
  // plan, and what memory points to, must outlive the net.
  Net(const NetPlan& plan, const NetMemory& memory);

  const NetPlan& plan() const { return plan_; }

  // Sums a statistic (device memory) over all ranks; what it enqueues precedes what comes after.
  using SumStatistic = std::function<absl::Status(Stream&, absl::string_view label, Tensor)>;
  // Calls bucket_needed(b), the last bucket first, before work that reads a parameter of bucket b
  // is enqueued.  Errors: those of the layers, with the layer's name.
  using BucketNeeded = std::function<absl::Status(int bucket)>;
  // Of a plan that pages, for the pager: called in order with each position of its order, before
  // the work of the step there is enqueued.  Steps that run again do so in these passes.
  using Enter = std::function<absl::Status(int position)>;
  // Where a step of the trace runs first; -1 and their number: before and after all.
  int At(int step) const;
  // Whether the plan has the step on the host: then what it touches, but for what is pinned, is in
  // pages.
  bool OnHost(int step) const;
  absl::Status Forward(Stream& stream, const SumStatistic& sum,
                       const BucketNeeded& bucket_needed = nullptr,
                       const Enter& enter = nullptr) const;

  // Calls bucket_ready(b) once the work that finishes bucket b's gradients is on the stream.  No
  // later work of this pass reads its parameters, and the next is of another step.
  using BucketReady = std::function<absl::Status(int bucket)>;
  absl::Status Backward(Stream& stream, const SumStatistic& sum, const BucketReady& bucket_ready,
                        const Enter& enter = nullptr) const;

  // What is carried from batch to batch; of a training net, from step to step.  Forward, or
  // Backward of layers that take part in it, leaves what the next batch finds.
  struct Carried {
    std::string name;  // LAYER.STATE
    Tensor rows;       // of this rank and one batch, in device memory
    int batch_axis;    // along which they lie
    int64_t first;     // number of the first, of all_rows
    int64_t all_rows;  // samples of a step, over all ranks
  };
  // Of each state, of each batch of a step.  Without `bound` rows have no memory.
  static std::vector<Carried> CarriedBy(const NetPlan& plan, const Net* bound = nullptr);
  std::vector<Carried> carried() const { return CarriedBy(plan_, this); }
  absl::Status ClearCarried(Stream& stream) const;
  // Of a bucket of one rank, or that is sent, in its ready step: sums of its squares find zeros
  // between gradients.
  absl::Status ClearPadding(Stream& stream, int bucket) const;
  // Of a training net whose steps are several batches: around the work of a step's batch number
  // `batch`, from 0, what was left by that batch of the step before, and what it leaves.  Of others
  // nothing.
  absl::Status BringCarried(Stream& stream, int64_t batch) const;
  absl::Status KeepCarried(Stream& stream, int64_t batch) const;

  // Views into the arenas.  Of a plan that pages, what follows holds at `step` of its trace; at
  // kHome, between iterations, and may be a page: host memory.
  static constexpr int kHome = -1;
  // Storage elements, flat, of a parameter of `set`.
  Tensor parameter(int index, const ParameterSet& set, int step = kHome) const;
  // Of what this rank updates of a bucket: how many pieces its state lies in, each updated in a
  // step of its own; and what is in one, from the first element on that this rank updates.
  int tiles(int bucket) const { return plan_.paging ? plan_.slots.tiles(bucket) : 1; }
  ElementRange tile(int bucket, int index) const;
  // A tile of it; `master` is null where the values themselves are.
  Tensor slot(int bucket, int kind, int tile = 0, int step = kHome) const;
  Tensor master(int bucket, int tile = 0, int step = kHome) const;
  // These have one place: a net input's and a batch ahead's, in the upload.
  Tensor input(int index) const;
  // All its gradients and the padding between.  Of one rank they have a home only where several
  // batches add to them.
  Tensor bucket(int index, int step = kHome) const;
  // Where the optimizer finds it, or the parameters what a server's owners have made of it, where
  // the plan takes that: bucket(index) then, but for one that is sent.
  Tensor summed(int index) const;
  bool sent(int bucket) const { return plan_.trace.summed[bucket] >= 0; }
  // Of a table of the plan: flat, as TableStates says; null where there is no such state.
  struct TableTensors {
    Tensor kept, first, rows, names, values;
  };
  TableTensors table(const TouchedTable& of) const;
  Tensor pixel_values(int input) const;  // [256 a channel or in all]; [0] if values come
  std::byte* step() const;               // the first of them, or the block
  StepScalars* step_scalars() const;     // right behind them
  LossScaleState* loss_scale() const;    // null: it is not dynamic, and in the block
  Tensor metrics() const;                // behind the block; F64 {sum, count} of each of MetricsOf
  Tensor records(int node) const;        // behind these; null of a layer that has none
  Tensor sums() const;                   // F64, one a bucket: the sum of its gradients' squares
  void* sums_scratch() const;            // kSumSquaresScratchBytes
  Tensor whole_ahead(int lane) const;    // U8: all bytes of a batch
  Tensor ahead(int lane, int input) const;  // an array of it

 private:
  struct Bound {
    std::vector<Tensor> forward, backward, gradients;  // by piece, then state
    std::vector<Tensor> recompute;                     // by state
  };
  // A forward step that runs again where the plan's order says so.
  struct Repeat {
    int position, node;
    std::vector<Tensor> states;
  };
  void FindRepeats();
  enum class LayerPass { kForward, kBackward, kRecompute };
  // Runs what the plan has run again before a step, and enters it.
  absl::Status Begin(Stream& stream, int step, const Enter& enter) const;
  std::byte* Address(int state, int step = kHome) const;
  std::byte* AddressAt(int state, int position) const;
  bool IsOnHost(int position) const;
  Tensor Flat(int state, const Parameter& parameter, int step) const;
  absl::Status RunRepeat(Stream& stream, const Repeat& repeat) const;
  absl::Status RunPhase(Stream& stream, int node, int phase, LayerPass pass,
                        std::span<const Tensor> states, std::span<const Tensor> gradients) const;
  // A piece of it, of one that is cut into pieces.
  absl::Status RunLayer(Stream& stream, int node, int piece, LayerPass pass,
                        const SumStatistic& sum, const Enter& enter) const;
  absl::Status Carry(Stream& stream, int node, const Enter& enter) const;
  absl::Status KeepTouched(Stream& stream, int node) const;
  BatchMean* batch_mean() const;
  std::byte* Home(size_t carried, int64_t batch) const;
  absl::Status Sum(Stream& stream, std::span<const GradientSum> sums, int piece,
                   const Enter& enter) const;
  absl::Status SeedLosses(Stream& stream, const Enter& enter) const;

  const NetPlan& plan_;
  const NetMemory memory_;
  std::vector<std::vector<const Stay*>> stays_;  // by block of the paging plan, in order
  std::vector<int> at_;                          // by step; empty: it is the step
  std::vector<std::vector<Repeat>> repeats_;     // by step that they run before
  std::vector<Bound> nodes_;
  const std::vector<CarriedState> carried_;
};

}  // namespace gyre
