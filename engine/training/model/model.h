// model.h: the nets of a run, for training, testing and the last smaller test batch, over one set
// of parameters in one arena.  They run one after another, so their activations share memory.
// Used by one thread.
#pragma once

#include <memory>
#include <vector>

#include "distributed/process_group.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/net/run/net.h"
#include "memory/pager/pager.h"

namespace gyre {

// The planner for a device.  A CPU's memory has no bound, so nothing pages there.
inline PlannerKind PlannerOn(DeviceKind device, PlannerKind planner = PlannerKind::kAuto) {
  return device == DeviceKind::kCpu ? PlannerKind::kNone : planner;
}

struct ModelOptions {
  bool train = true;                    // false: only testing nets
  RunShape shape;                       // PlanModel computes `local`
  int64_t test_batch = 0;               // over all ranks; at most test_samples, if there are any
  int64_t test_samples = 0;             // 0: no testing nets
  std::vector<std::string> slots = {};  // the optimizer's, by name
  size_t bucket_bytes = 1 << 20;
  bool fit_buckets = false;  // bucket_bytes is the worthwhile size (FitBuckets), else the largest
  // The allreduce has halves (CheckHalves), which send the touched rows of tables.
  bool can_send_rows = false;
  Feed feed = {};
  size_t capacity_bytes = ~size_t{0};
  // The paging planner for nets larger than capacity_bytes, or kNone for an error.
  PlannerKind planner = PlannerKind::kNone;
  PagingCosts paging = {};
  size_t host_bytes = ~size_t{0};          // of pages; further pages are in a file
  std::string page_folder = {};            // folder of that file
  int threads = 1;                         // for updates on the host
  std::string device_allreduce = {};       // algorithm in device memory; "": none
  const Primitives* primitives = nullptr;  // outlives the model
};

struct ModelPlan {
  ModelOptions options;
  ParameterSet parameters;
  std::unique_ptr<NetPlan> train;  // null if options.train is false
  // The training net for paging, where several ranks send its buckets from the device.  Null if the
  // nets page, or if it would be the same.
  std::unique_ptr<NetPlan> paged;
  size_t resident_bytes = 0;            // device memory with which nothing pages
  std::unique_ptr<PageFile> page_file;  // null: not made yet, or nothing is on disk
  // The training net of an iteration that only accumulates, with the same homes.  For nets that
  // page.  Null if there are no such iterations.
  std::unique_ptr<NetPlan> accumulating;
  std::vector<std::unique_ptr<NetPlan>> test;  // the full batch, then the remainder, if any

  // Makes page_file if a page is on disk.  Later calls do nothing.  Errors: PageFile::Create's.
  absl::Status OpenPages();
  bool pages() const {
    return train ? train->paging.has_value() : !test.empty() && test[0]->paging;
  }
  size_t device_bytes() const;         // the device arena of all nets
  size_t page_bytes() const;           // pages in pinned host memory
  size_t disk_bytes() const;           // pages in a file
  size_t disk_home_bytes() const;      // its beginning: persistent blocks
  size_t persistent_bytes() const;     // training only: device states that outlive a step
  size_t parameter_bytes() const;      // their beginning: parameters without buffers
  size_t communication_bytes() const;  // the gradients' arena
  size_t allreduce_bytes() const;      // buffers that sum gradients in device memory
  // Memory of a parameter server beside the slots, on the device of the neediest rank and pinned on
  // this rank.  `paged` asks for nets that page.
  ServerBytes server_bytes(bool paged) const;
  size_t slot_bytes() const;    // training only: this rank's optimizer state
  size_t master_bytes() const;  // training only: this rank's masters
  // Whether files have the parameter's master, which is an optimizer slot, instead of its value.
  bool has_master(size_t parameter) const;
  // A bucket's optimizer slot or masters in a checkpoint.  Rank 0 writes the masters, which are its
  // weights.  Training only, like the next two.
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
    size_t values = 0, rows = 0, slots = 0;  // that this rank writes; carried rows
    size_t others = 0;                       // buffer for any slot that another rank writes
  };
  CopyBytes copy_bytes() const;
  // Host memory for a checkpoint: the copy, and the tensors unpacked from it.
  size_t checkpoint_bytes() const;
  // Text of parameters, layouts, buckets and carried rows.  It must be equal on all ranks.
  std::string Fingerprint() const;
};

// Plans all nets, to page if they do not fit and can.  Allocates no device memory.  The parsed net
// must outlive the plan.  Errors: those of PlanNet, InvalidArgument if there is nothing to train,
// and ResourceExhausted naming the least capacity, or an input whose batch exceeds the capacity.
absl::StatusOr<ModelPlan> PlanModel(const Parsed<NetConfig>& net, const ModelOptions& options);

// Plans again how the training net pages, in iterations of both kinds, and returns whether the plan
// changed.  `step_seconds` has the device time of each step of the updating iteration.
// A new plan is predicted to be faster, needs no larger file and rounds nothing.  Persistent blocks
// stay where they are.  The predictions are new in any case.  Precondition: pages by kAuto.
absl::StatusOr<bool> PlanPagesAnew(ModelPlan& plan, std::span<const double> step_seconds,
                                   const PagingCosts& costs);

// The least capacity for options.planner.
size_t LeastCapacity(const ModelPlan& plan);
// How `train`, `accumulating` and, unless train_alone, those of `test` page in this capacity.
// Precondition: options.planner is not kNone.  Errors: those of PlanPaging.
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

// Errors: Internal, naming the first tensor with a non-finite value.
absl::Status CheckFiniteTensors(std::span<const NamedTensor> tensors);

// Whether Model::Load would succeed, by the plan alone.  `optimizer` may be null.
// Errors: those of CheckStored and CheckReadable, and Internal for a non-finite weight.
absl::Status CheckLoad(const ModelPlan& plan, const TensorFile& weights,
                       const TensorFiles* optimizer);
// Whether Model::LoadCarried would succeed.  Errors: those of ReadRows.
absl::Status CheckCarried(const ModelPlan& plan, const TensorFiles& carried);

// Assigns each item to a rank, for about equal bytes.  Rank 0 starts with `rank_0_has`.
std::vector<int> ShareOut(std::span<const size_t> bytes, int ranks, size_t rank_0_has);

class Model {
 public:
  // Allocates arenas and pages, and clears the gradients that ranks sum.  On a CPU, the ranks of a
  // host sum in a shared gradients' arena, and with a sharded optimizer share one copy of the
  // parameters.  `communication` shares memory, must outlive the model, and is required for a
  // sharded optimizer.
  // Errors: those of Device::Allocate, ProcessGroup::Share and PageFile::Create.
  static absl::StatusOr<std::unique_ptr<Model>> Create(ModelPlan plan, Device& device,
                                                       Stream& stream,
                                                       ProcessGroup* communication = nullptr);

  const ModelPlan& plan() const { return plan_; }
  const Net& train() const { return *train_; }
  // The training net of an iteration that updates, or that only accumulates.
  const Net& train(bool updates) const {
    return updates || accumulating_ == nullptr ? *train_ : *accumulating_;
  }
  // With a server, the net of a step's first iteration, which receives the owners' values.
  const Net& taking() const { return train(plan_.options.shape.takes(/*updates=*/true)); }
  // Whether ranks share one copy of the parameters.
  bool one_copy() const { return !parameters_.empty(); }
  const std::vector<std::unique_ptr<Net>>& test() const { return test_; }
  // The pager of train(updates) or test()[index].  Null if the plan does not page.
  Pager* train_pager(bool updates = true) const {
    return updates || accumulating_pager_ == nullptr ? train_pager_.get()
                                                     : accumulating_pager_.get();
  }
  Pager* test_pager(size_t index) const { return test_pagers_[index].get(); }
  // PlanPagesAnew, with measured speeds of copies and, if it has pages, of the disk.  If it returns
  // true, train() and the pagers are replaced.  Precondition: nothing is in flight.
  // Errors: those of allocation.
  absl::StatusOr<bool> PlanPagesAnew(Stream& stream, std::span<const double> step_seconds);
  // Enqueues copies that bring parameters, slots and carried rows home, for work other than an
  // iteration.  Precondition: the last iteration enqueued updates.
  absl::Status BringHome(Stream& stream) const {
    return train_pager_ ? train_pager_->BringHome(stream) : absl::OkStatus();
  }

  // Permits changes of blocks at home until the next iteration.  Precondition: BringHome.
  void ReleaseHomes() const {
    if (page_file_) page_file_->Release();
  }

  absl::Status Clear(Stream& stream, const Tensor& home) const;
  // Sets values from options.seed, and zeros in slots and carried rows.  Like all functions below,
  // waits for the stream.  If ranks share one copy of the parameters, all ranks call it.
  absl::Status Initialize(Stream& stream);
  // Sets the parameters that the file has.  Ranks and errors: as Load.
  absl::Status LoadSome(Stream& stream, const TensorFile& weights);
  // Sets all parameters.  Slots become zero, or are read from `optimizer`, one parameter at a time
  // and only those that this rank updates.  Ranks as Initialize.  Precondition: CheckLoad.
  // Errors: those of PackParameter and TensorFiles::Read.
  absl::Status Load(Stream& stream, const TensorFile& weights, const TensorFiles* optimizer);
  // Sets this rank's carried rows.  Errors: those of ReadRows.
  absl::Status LoadCarried(Stream& stream, const TensorFiles& carried);
  // Text for people about tensors that no parameter uses, or "".
  std::string Unknown(const TensorFile& weights) const;
  // Copies this rank's part of a checkpoint, as stored, to pinned memory.  Resizes `copy` to fit.
  // Each rank has its carried rows, and rank 0 the weights and all slots.  With a sharded optimizer
  // each rank has whole buckets of slots, for about equal bytes.  Then all ranks call it, and it
  // returns errors of communication too.
  absl::Status CopyState(Stream& stream, Buffer& copy) const;
  // Converts the copy to canonical form, in the copy itself where possible.  Any thread, also while
  // the model is in use.
  struct UnpackedState {
    HostTensors weights, optimizer, carried;  // parameters and buffers; slots; this rank's rows
  };
  absl::Status UnpackState(std::span<std::byte> copy, UnpackedState& state) const;
  // The digest that `train` prints, of the tensors of the weights file in the order of its names.
  // Reads one parameter at a time, because memory may not hold a copy of all.
  absl::StatusOr<std::string> Sha256OfWeights(Stream& stream) const;

 private:
  Model(ModelPlan plan, Device& device, ProcessGroup* communication)
      : plan_(std::move(plan)), device_(device), communication_(communication) {}
  absl::Status BindNets();
  int buckets() const { return static_cast<int>(plan_.train->order.buckets.size()); }
  const Net& any() const { return train_ ? *train_ : *test_.front(); }
  absl::Status LoadParameter(Stream& stream, size_t index, const TensorFile& weights);
  absl::Status Upload(Stream& stream, std::span<const std::byte> bytes, Tensor to);
  // Sets a value from `bytes`, in the parameter's layout and of FileDType.  Rounds them to 16 bits
  // if needed, and then stores the range that this rank updates as its master.
  absl::Status SetParameter(Stream& stream, size_t index, std::span<const std::byte> bytes);
  bool writes(size_t index) const;
  // Ends a function that writes values.
  absl::Status ValuesWritten() const;
  absl::Status ClearSlotsAndCarried(Stream& stream);
  absl::Status LoadSlots(Stream& stream, int bucket, const TensorFiles& optimizer);
  // Sets elements of this rank's shard of a bucket's slot, from `at` on.  After the last kind come
  // the masters.
  absl::Status SetSlot(Stream& stream, int bucket, int kind, int64_t at,
                       std::span<const std::byte> bytes);
  // Starts a copy of a whole bucket's slot to `to`.  With a sharded optimizer waits for it.
  absl::Status CopySlot(Stream& stream, int bucket, int kind, std::byte* to) const;
  // Reads a value in canonical form.  `storage` holds the copy of a value in device memory, or of a
  // bucket's masters, which serves the next parameters too.  All ranks read in one order.
  struct Storage {
    std::vector<std::byte> bytes;
    int bucket = -1;  // whose masters they are
  };
  absl::Status ReadValue(Stream& stream, size_t index, Storage& storage, HostTensors& value) const;
  absl::Status UnpackSlot(int bucket, std::span<std::byte> whole, absl::string_view suffix,
                          HostTensors& to) const;

  ModelPlan plan_;
  Device& device_;
  ProcessGroup* const communication_;
  Buffer device_arena_, communication_arena_;  // the latter empty if ranks share it
  Buffer pages_;                               // empty if nothing pages
  std::unique_ptr<PageFile> page_file_;        // null if nothing is on disk
  std::span<std::byte> parameters_;            // the shared copy, if there is one
  NetMemory memory_;
  std::unique_ptr<Net> train_, accumulating_;  // the latter null if it would be the same
  std::vector<std::unique_ptr<Net>> test_;
  std::unique_ptr<Pager> train_pager_, accumulating_pager_;
  std::vector<std::unique_ptr<Pager>> test_pagers_;
};

}  // namespace gyre
