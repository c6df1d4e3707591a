// net.h: a planned net bound to memory.  Used by one thread.  Run executes the plan's program: it
// enqueues the work on a stream, and returns.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/training/net/plan/net_plan.h"
#include "engine/training/step_scalars.h"

namespace gyre {

struct NetMemory {
  std::byte* device = nullptr;         // arena
  std::byte* communication = nullptr;  // may be null if the plan does not train
  std::byte* pages = nullptr;          // if the plan pages
  std::byte* file_homes = nullptr;     // if the plan pages to disk: the mapped file
  // Holds the parameters that no layer writes, in place of the device arena's first bytes.  Empty
  // if the plan pages, or if the arena has them.
  std::span<std::byte> parameters = {};
};

class Net {
 public:
  // `plan` and the memory must outlive the net.
  Net(const NetPlan& plan, const NetMemory& memory);

  const NetPlan& plan() const { return plan_; }

  // Sums a statistic in device memory over all ranks, ahead of later work on the stream.
  using SumStatistic = std::function<absl::Status(Stream&, absl::string_view label, Tensor)>;
  // For a pager: called with each position of the plan's order, before the work there is enqueued.
  // Steps that run again have positions too.
  using Enter = std::function<absl::Status(int position)>;
  // The first position of a step of the trace.  Also for -1, before all, and for their number,
  // after.
  int At(int step) const { return step < 0 ? step : at_[step]; }
  // Whether the plan runs the step on the host.  All that it touches, but pinned states, is then in
  // pages.
  bool OnHost(int step) const { return plan_.paging && IsOnHost(At(step)); }
  // What a step of the program does that is not the net's own (IsOfNet).
  using Other = std::function<absl::Status(int step, const Instruction&)>;
  // Executes the plan's program.  Errors: those of the layers, with the layer's name, of `other`
  // and of `enter`.
  absl::Status Run(Stream& stream, const SumStatistic& sum, const Other& other,
                   const Enter& enter = nullptr) const;
  // Executes one step of the net's own.
  absl::Status RunOwn(Stream& stream, int step, const SumStatistic& sum) const;

  // A state carried from batch to batch, and in training from step to step.  Forward, or Backward
  // if the layer takes part in it, leaves the next batch's rows.
  struct Carried {
    std::string name;  // LAYER.STATE
    Tensor rows;       // this rank's of one batch, in device memory
    int batch_axis;    // axis of the rows
    int64_t first;     // number of the first row among all_rows
    int64_t all_rows;  // samples of a step, over all ranks
  };
  // By state, then batch of a step.  Without `bound`, rows have no memory.
  static std::vector<Carried> CarriedBy(const NetPlan& plan, const Net* bound = nullptr);
  std::vector<Carried> carried() const { return CarriedBy(plan_, this); }
  absl::Status ClearCarried(Stream& stream) const;
  // Clears the padding of a bucket at a step, so that sums of squares find zeros there.  Does
  // nothing to one in the communication arena, whose padding stays clear unless turns share it.
  absl::Status ClearPadding(Stream& stream, int bucket, int step) const;
  // Bring carried rows from their home before batch number `batch` of a step, from 0, and home
  // after it.  Both do nothing unless a training step has several batches.
  absl::Status FetchCarried(Stream& stream, int64_t batch) const;
  absl::Status StoreCarried(Stream& stream, int64_t batch) const;

  // Tensors in the arenas.  If the plan pages, their address holds at `step` of its trace.  At
  // kHome, between iterations, it may be in a page, which is host memory.
  static constexpr int kHome = -1;
  // A parameter's storage elements, flat.
  Tensor parameter(int index, const ParameterSet& set, int step = kHome) const;
  // Copy a range of a bucket between its parameters at a step and `packed`, which has the range.
  absl::Status PackParameters(Stream& stream, const ParameterSet& set, int bucket,
                              ElementRange range, const Tensor& packed, int step = kHome) const;
  absl::Status UnpackParameters(Stream& stream, const ParameterSet& set, int bucket,
                                ElementRange range, const Tensor& packed, int step = kHome) const;
  // The tiles of this rank's shard of a bucket, each updated in a step of its own.  A tile's range
  // counts from the shard's first element.
  int tiles(int bucket) const { return plan_.paging ? plan_.slots.tiles(bucket) : 1; }
  ElementRange tile(int bucket, int index) const;
  // A tile of an optimizer slot or of the masters, or null without masters.
  Tensor slot(int bucket, int kind, int tile = 0, int step = kHome) const;
  Tensor master(int bucket, int tile = 0, int step = kHome) const;
  // The address of a net input, or of a batch ahead (below), in the upload.
  Tensor input(int index) const;
  // A bucket's gradients, with padding.  On one rank they have a home only if several batches add
  // to them.
  Tensor bucket(int index, int step = kHome) const;
  // The gradients that an update reads, or a server's new parameters, at the plan's step for them,
  // or at another that has them.  This is bucket(index) unless the bucket is sent.
  Tensor summed(int index) const;
  Tensor summed(int index, int step) const;
  bool sent(int bucket) const { return plan_.trace.buckets[bucket].summed >= 0; }
  // Flat tensors of TableStates, or null.
  struct TableTensors {
    Tensor kept, first, rows, names, values;
  };
  TableTensors table(const TouchedTable& of) const;
  Tensor pixel_values(int input) const;     // [256 a channel or in all]; [0]: not bytes
  std::byte* step() const;                  // the state "step", from pixel_values on
  StepScalars* step_scalars() const;        // after pixel_values
  LossScaleState* loss_scale() const;       // null: not dynamic, and in the StepScalars
  Tensor metrics() const;                   // F64 {sum, count} of each of MetricsOf
  Tensor records(int node) const;           // null if the layer has none
  Tensor sums() const;                      // F64, by bucket: sum of squares of gradients
  void* sums_scratch() const;               // kSumSquaresScratchBytes
  std::byte* norms() const;                 // NormsBytes; null if updates use none
  Tensor whole_ahead(int lane) const;       // U8: all bytes of a batch
  Tensor ahead(int lane, int input) const;  // an array of it

 private:
  struct Bound {
    std::vector<Tensor> states, gradients;  // by the node's state
  };
  void FindPositions();
  // Whether the step there has run before, and its forward runs again.
  bool IsRepeat(int position) const { return at_[order_[position]] != position; }
  Instruction InstructionAt(int position) const;
  bool IsOnHost(int position) const;
  // A state's address at a step, or at a position of the plan's order.
  std::byte* AddressOf(int state, int step = kHome) const { return AtPosition(state, At(step)); }
  std::byte* AtPosition(int state, int position) const;
  // All of a state at a step, or null for state -1.
  Tensor Flat(int state, DType dtype, int step = kHome) const;
  // A node's tensors, with memory where the layer touches them.
  Bound BindLayer(int position) const;
  void CheckBuckets() const;
  absl::Status RunLayer(Stream& stream, int position, const SumStatistic& sum) const;
  absl::Status Carry(Stream& stream, int step) const;
  absl::Status KeepTouched(Stream& stream, int position) const;
  BatchMean* batch_mean() const;
  std::byte* Home(size_t carried, int64_t batch) const;
  using CopyCarried =
      absl::FunctionRef<absl::Status(std::byte* rows, std::byte* home, size_t bytes)>;
  absl::Status EachCarried(int64_t batch, CopyCarried copy) const;
  absl::Status SumTerms(Stream& stream, int step) const;
  absl::Status SeedLosses(Stream& stream, int step) const;

  const NetPlan& plan_;
  const NetMemory memory_;
  std::vector<std::vector<const Stay*>> stays_;  // by block of the paging plan, in order
  std::vector<int> order_;                       // steps by position
  std::vector<int> at_;                          // the first position by step, and their number
  std::vector<Bound> bound_;                     // by position; of layers' alone
};

}  // namespace gyre
