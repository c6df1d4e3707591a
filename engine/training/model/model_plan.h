// model_plan.h: the nets of a run, for training, testing and the last smaller test batch, planned
// together.  Pure functions of the net's text and the options, but for OpenPages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/parameter_server/tables.h"
#include "engine/training/net/plan/net_plan.h"
#include "memory/pager/disk/page_file.h"

namespace gyre {

// The planner for a device.  A CPU's memory has no bound, so nothing pages there.
inline PlannerKind PlannerOn(DeviceKind device, PlannerKind planner = PlannerKind::kAuto) {
  return device == DeviceKind::kCpu ? PlannerKind::kNone : planner;
}

// What a step's iterations run.
struct TrainingNets {
  std::unique_ptr<NetPlan> train;  // null if options.train is false
  // The training net of an iteration that only accumulates, with the same homes.  Null if there are
  // no such iterations.
  std::unique_ptr<NetPlan> accumulating;
  // Both for paging, where several ranks send buckets from the device.  Null if the nets page, or
  // if they would be the same.
  std::unique_ptr<NetPlan> paged, paged_accumulating;
};

// With players (RunShape) no iteration runs `train`, and it has no other nets.  It has the buckets
// and the optimizer's state of all, which the nets of turns share.
struct ModelPlan : TrainingNets {
  ModelOptions options;
  ParameterSet parameters;
  std::vector<TrainingNets> turns;             // by player
  size_t resident_bytes = 0;                   // device memory with which nothing pages
  std::unique_ptr<PageFile> page_file;         // null: not made yet, or nothing is on disk
  std::vector<std::unique_ptr<NetPlan>> test;  // the full batch, then the remainder, if any

  // Makes page_file if a page is on disk.  Later calls do nothing.  Errors: PageFile::Create's.
  absl::Status OpenPages();
  // The training net of a turn, or of all that trains.
  const TrainingNets& nets_of(int turn) const {
    return turns.empty() ? *this : turns[static_cast<size_t>(turn)];
  }
  bool pages() const {
    return train ? nets_of(0).train->paging.has_value() : !test.empty() && test[0]->paging;
  }
  size_t device_bytes() const;         // the device arena of all nets
  size_t page_bytes() const;           // pages in pinned host memory
  size_t disk_bytes() const;           // pages in a file, which begins with persistent blocks
  size_t parameter_bytes() const;      // training only: the beginning: parameters without buffers
  size_t communication_bytes() const;  // the gradients' arena
  size_t allreduce_bytes() const;      // buffers that sum gradients in device memory
  // Memory of a parameter server beside the slots, on the device of the neediest rank and pinned on
  // this rank.
  ServerBytes server_bytes() const { return ServerBytesBy(/*background=*/!pages()); }
  // The same, if nets page.
  ServerBytes paged_server_bytes() const { return ServerBytesBy(/*background=*/false); }
  ServerBytes ServerBytesBy(bool background) const;  // ServerOptions::background
  size_t slot_bytes() const;                         // training only: this rank's optimizer state
  size_t master_bytes() const;                       // training only: this rank's masters
  // Whether files have the parameter's master, which is an optimizer slot, instead of its value.
  bool has_master(size_t parameter) const;
  // A bucket's optimizer slot or masters in a checkpoint.  Rank 0 writes the masters, which are its
  // weights, and the averages, which readers of weights take.  Training only, like the next two.
  struct Slot {
    int bucket, kind;
    bool master;
    size_t bytes;  // of the whole bucket
    int writer;    // rank
  };
  std::vector<Slot> saved_slots() const;
  // The copy of this rank's part of a checkpoint.  Each tensor starts at a cache line.
  static constexpr size_t kCopyAlignBytes = 64;
  struct CopyBytes {
    size_t own = 0;     // values, carried rows and slots that this rank writes
    size_t others = 0;  // buffer for any slot that another rank writes
  };
  CopyBytes copy_bytes() const;
  // Host memory for a checkpoint: the copy, and the tensors unpacked from it.
  size_t checkpoint_bytes() const;
  // Text of parameters, layouts, buckets and carried rows.  It must be equal on all ranks.
  std::string Fingerprint() const;
};

// Whether nets can train in turn (RunShape::players).
// `whole` is of all layers, and `turns` of the players', in order.
// Errors: InvalidArgument, naming player or layer, for
//   a loss that is none, or a pattern of layers that no trained layer has
//   a trained layer of no player or of two, or on which none of its player's losses depends
//   a parameter that layers of two players share
//   a parameter server, a dynamic loss scale, trainable_from, or carried rows
absl::Status CheckPlayers(const Parsed<NetConfig>& net, const NetSpec& whole,
                          std::span<const TrainingNets> turns);

// Plans all nets, to page if they do not fit and can.  Allocates no device memory.  The parsed net
// must outlive the plan.  Errors: those of PlanNet, InvalidArgument if there is nothing to train,
// and ResourceExhausted naming the least capacity, or an input whose batch exceeds the capacity.
absl::StatusOr<ModelPlan> PlanModel(const Parsed<NetConfig>& net, const ModelOptions& options);

// Adds a testing net for another batch, over the same parameters, to a plan without training or
// paging.  `net` is that of PlanModel.  Errors: as PlanModel's, and FailedPrecondition if it pages.
absl::Status AddTest(const Parsed<NetConfig>& net, int64_t batch, ModelPlan& plan);

// Plans again how the training net pages, in iterations of both kinds, and returns whether the plan
// changed.  `step_seconds` has the device time of each step of the updating iteration.
// A new plan is predicted to be faster, needs no larger file and rounds nothing.  Persistent blocks
// stay where they are.  The predictions are new in any case.  Precondition: pages by kAuto.
absl::StatusOr<bool> PlanPagesAnew(ModelPlan& plan, std::span<const double> step_seconds,
                                   const PagingCosts& costs);

// The least capacity for options.pages.planner.
size_t LeastCapacity(const ModelPlan& plan);
// How `train`, `accumulating` and, unless train_alone, those of `test` page in this capacity.
// Precondition: options.pages.planner is not kNone.  Errors: those of PlanPaging.
absl::StatusOr<std::vector<PagingPlan>> PlanPages(const ModelPlan& plan, size_t capacity_bytes,
                                                  bool train_alone = false);

// The bytes of the training net in another precision.
struct PrecisionBytes {
  DType precision;
  std::string refusal = {};  // why it cannot train in it; "": it can
  size_t activations = 0, parameters = 0, masters = 0, optimizer = 0, gradients = 0;
  double sent = 0;  // in a step
};
std::vector<PrecisionBytes> BytesInEachPrecision(const Parsed<NetConfig>& net,
                                                 const ModelOptions& options,
                                                 const BytesOfSum& sum);

// Whether Model::Load would succeed, by the plan alone.  `optimizer` may be null, or else is that
// of step `step`.  It may lack the slots of parameters that train from this step. Errors: those of
// CheckStored and CheckReadable, and Internal for a non-finite weight.
absl::Status CheckLoad(const ModelPlan& plan, const TensorFile& weights,
                       const TensorFiles* optimizer, int64_t step = 0);
// Whether Model::LoadCarried would succeed, by the files' headers alone.  Errors: those of
// ReadRows.
absl::Status CheckCarried(const ModelPlan& plan, const TensorFiles& carried);

// Assigns each item to a rank, for about equal bytes.  Rank 0 starts with `rank_0_has`.
std::vector<int> ShareOut(std::span<const size_t> bytes, int ranks, size_t rank_0_has);

}  // namespace gyre
