// model.h: every net of a run (training, testing, the last smaller test batch) over one set of
// parameters in one arena.  Nets run one after another, so their activations share memory.  Used by
// one thread.
#pragma once

#include <memory>
#include <vector>

#include "distributed/process_group.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/net/run/net.h"
#include "memory/pager/pager.h"

namespace gyre {

// Of a CPU nothing moves: its memory has no bound.
inline PlannerKind PlannerOn(DeviceKind device, PlannerKind planner = PlannerKind::kAuto) {
  return device == DeviceKind::kCpu ? PlannerKind::kNone : planner;
}

struct ModelOptions {
  bool train = true;         // false: only testing nets
  RunShape shape;            // of a training step; PlanModel computes `local`
  int64_t test_batch = 0;    // over all ranks; precondition: <= test_samples if there are any
  int64_t test_samples = 0;  // 0: no testing nets
  std::vector<std::string> slots = {};  // the optimizer's, by name
  size_t bucket_bytes = 1 << 20;
  bool fit_buckets = false;  // bucket_bytes are worthwhile (FitBuckets); else the most
  // Ranks have halves of sums (CheckHalves), with which the touched rows of tables are sent.
  bool can_send_rows = false;
  Feed feed = {};
  size_t capacity_bytes = ~size_t{0};
  // Of what moves when where they do not fit that; kNone: an error.
  PlannerKind planner = PlannerKind::kNone;
  PagingCosts paging = {};
  size_t host_bytes = ~size_t{0};          // of pages; those beyond lie in a file
  std::string page_folder = {};            // which is made there, if it is needed
  int threads = 1;                         // of updates on the host
  std::string device_allreduce = {};       // that sums gradients in device memory; "": none does
  const Primitives* primitives = nullptr;  // outlives the model
};

struct ModelPlan {
  ModelOptions options;
  ParameterSet parameters;
  std::unique_ptr<NetPlan> train;  // null if options.train is false
  // As it is where nets page, if these do not and it would be another: of several ranks buckets are
  // sent.
  std::unique_ptr<NetPlan> paged;
  size_t resident_bytes = 0;  // of device memory, with which all have all they need for good
  std::unique_ptr<PageFile> page_file;  // null: there is none yet, or nothing is on disk
  // As an iteration has it that only accumulates, with the same homes: of use where nets page. Null
  // if there are none.
  std::unique_ptr<NetPlan> accumulating;
  std::vector<std::unique_ptr<NetPlan>> test;  // the full batch, then the remainder if there is one

  // Makes page_file, unless it is made or no page is on disk.  Errors: those of PageFile::Create.
  absl::Status OpenPages();
  bool pages() const {
    return train ? train->paging.has_value() : !test.empty() && test[0]->paging;
  }
  size_t device_bytes() const;         // of the arena that serves them all
  size_t page_bytes() const;           // of pinned host memory, where what is paged out lies
  size_t disk_bytes() const;           // of a file, where the rest of it does
  size_t disk_home_bytes() const;      // of that: what is persistent, its beginning
  size_t persistent_bytes() const;     // of it: what keeps its value over steps; of one that trains
  size_t parameter_bytes() const;      // of that: what only the optimizer writes, its beginning
  size_t communication_bytes() const;  // of the gradients' arena
  size_t allreduce_bytes() const;      // of what sums gradients in device memory
  // Of a parameter server: of device memory, on the rank that has most, beside the slots; and of
  // pinned host memory on this one.  paged: where nets page, or as they are.
  ServerBytes server_bytes(bool paged) const;
  size_t slot_bytes() const;    // of the optimizer's state on this rank; of one that trains
  size_t master_bytes() const;  // likewise of masters
  // Whether files have its master, a slot of its bucket, in place of the value.
  bool has_master(size_t parameter) const;
  // What a checkpoint has of a bucket: the optimizer's slots, and in rank 0's hand the masters,
  // which are its weights.  Of a plan that trains, as the next two.
  struct Slot {
    int bucket, kind;
    bool master;
    size_t bytes;  // of all ranks' parts
    int writer;    // rank
  };
  std::vector<Slot> saved_slots() const;
  // Of the copy that this rank makes for its part of a checkpoint, each tensor from a cache line.
  static constexpr size_t kCopyAlignBytes = 64;
  struct CopyBytes {
    size_t values = 0, rows = 0, slots = 0;  // that it writes; rows are carried
    size_t others = 0;                       // a place for any slot that another rank writes
  };
  CopyBytes copy_bytes() const;
  // Host memory that it has for a checkpoint: the copy, and what is unpacked of it.
  size_t checkpoint_bytes() const;
  // What must be equal on all ranks, as text: parameters with layouts, buckets, what is
  // carried.
  std::string Fingerprint() const;
};

// Allocates nothing.  The parsed net must outlive the plan.  Errors: those of PlanNet;
// InvalidArgument if there is nothing to train; ResourceExhausted naming the smallest capacity that
// would do, or an input whose batch alone exceeds it.  Where the nets do not fit and can page, all
// of them are planned to.
absl::StatusOr<ModelPlan> PlanModel(const Parsed<NetConfig>& net, const ModelOptions& options);

// Plans anew how the training net pages, in iterations of either kind, by what each step of the
// updating one's trace takes on the device, in seconds, and how fast copies and steps on the host
// are, where that is predicted to be faster, takes no more of a file and rounds nothing; what
// persists stays where it is.  Whether it has; what is predicted is by these in any case.
// Precondition: it pages, by the planner kAuto.
absl::StatusOr<bool> PlanPagesAnew(ModelPlan& plan, std::span<const double> step_seconds,
                                   const PagingCosts& costs);

// The least that options.planner makes do with.
size_t LeastCapacity(const ModelPlan& plan);
// How its nets page in so much: `train`, `accumulating`, and unless train_alone those of `test`.
// Precondition: options.planner is not kNone.  Errors: those of PlanPaging.
absl::StatusOr<std::vector<PagingPlan>> PlanPages(const ModelPlan& plan, size_t capacity_bytes,
                                                  bool train_alone = false);

// What a training net that is planned with these options takes in a precision, in bytes.
struct PrecisionBytes {
  DType precision;
  std::string refusal = {};  // why it cannot be; "": it can
  size_t activations = 0, parameters = 0, masters = 0, optimizer = 0, gradients = 0;
  double sent = 0;  // a step
};
std::vector<PrecisionBytes> BytesInEachPrecision(const Parsed<NetConfig>& net,
                                                 const ModelOptions& options,
                                                 const BytesOfSum& sum);

// Errors: Internal, naming the first tensor with a value that is not finite.
absl::Status CheckFiniteTensors(std::span<const NamedTensor> tensors);

// Whether Model::Load can take this, by what the plan has.  `optimizer` null: weights alone.
// Errors: those of CheckStored and CheckReadable; Internal for a weight that is not finite.
absl::Status CheckLoad(const ModelPlan& plan, const TensorFile& weights,
                       const TensorFiles* optimizer);
// Likewise Model::LoadCarried.  Errors: those of ReadRows.
absl::Status CheckCarried(const ModelPlan& plan, const TensorFiles& carried);

// Which of `ranks` takes each item, so that all have about the same bytes; rank 0 has some already.
std::vector<int> ShareOut(std::span<const size_t> bytes, int ranks, size_t rank_0_has);

class Model {
 public:
  // Allocates arenas and pages and clears gradients that ranks sum; these come through
  // `communication`, where it is given and the device's memory is the host's: ranks that share it
  // sum it where it lies. It outlives the model, and must be given where ranks share out the
  // optimizer: then those of one host, likewise, have one copy of the parameters.  Errors: those of
  // Device::Allocate, ProcessGroup::Share and PageFile::Create.
  static absl::StatusOr<std::unique_ptr<Model>> Create(ModelPlan plan, Device& device,
                                                       Stream& stream,
                                                       ProcessGroup* communication = nullptr);

  const ModelPlan& plan() const { return plan_; }
  const Net& train() const { return *train_; }
  // As an iteration has it that updates, or that only accumulates.
  const Net& train(bool updates) const {
    return updates || accumulating_ == nullptr ? *train_ : *accumulating_;
  }
  // With a server: as a step's first iteration has it, which takes what owners have made.
  const Net& taking() const { return train(plan_.options.shape.takes(/*updates=*/true)); }
  // Whether all ranks see the same parameters: what one of them writes there all have.
  bool one_copy() const { return !parameters_.empty(); }
  const std::vector<std::unique_ptr<Net>>& test() const { return test_; }
  // Of the training net, likewise, or number `index` of test(); null if the plan does not page.
  Pager* train_pager(bool updates = true) const {
    return updates || accumulating_pager_ == nullptr ? train_pager_.get()
                                                     : accumulating_pager_.get();
  }
  Pager* test_pager(size_t index) const { return test_pagers_[index].get(); }
  // As PlanPagesAnew, with copies, and the disk where it has pages, that it times.  Then train()
  // and the pagers are others: nothing may be in flight.  Errors: those of allocation.
  absl::StatusOr<bool> PlanPagesAnew(Stream& stream, std::span<const double> step_seconds);
  // What comes after on `stream` finds parameters, slots and carried rows at home: call it before
  // what is not an iteration, once iterations have been enqueued, the last of which updates.
  absl::Status BringHome(Stream& stream) const {
    return train_pager_ ? train_pager_->BringHome(stream) : absl::OkStatus();
  }

  // After BringHome, before what is at home is changed: until the next iteration that is no fault.
  void ReleaseHomes() const {
    if (page_file_) page_file_->Release();
  }

  // Zeros in what is at home.
  absl::Status Clear(Stream& stream, const Tensor& home) const;
  // Values from options.seed; optimizer slots zero, and so is what is carried from step to step.
  // What takes a stream waits for it; of one copy, this and what loads values for all ranks.
  absl::Status Initialize(Stream& stream);
  // Values from a file, as far as it has them; the other parameters keep theirs.  Errors: as Load.
  absl::Status LoadSome(Stream& stream, const TensorFile& weights);
  // Values from files.  `optimizer` null: slots zero; else it is read a parameter at a time, and of
  // it only what this rank updates.  Precondition: CheckLoad.  Errors: those of PackParameter and
  // TensorFiles::Read.
  absl::Status Load(Stream& stream, const TensorFile& weights, const TensorFiles* optimizer);
  // What the net carries from step to step, this rank's rows of it.  Errors: those of ReadRows.
  absl::Status LoadCarried(Stream& stream, const TensorFiles& carried);
  // What a file holds that no parameter takes, for people; "" if there is nothing.
  std::string Unknown(const TensorFile& weights) const;
  // Copies what this rank writes of a checkpoint, as it is stored, to pinned memory, and makes
  // `copy` as large as that takes: the rows that it carries; rank 0 writes the weights and, unless
  // ranks share out the optimizer, all its slots; else each rank writes whole buckets of slots,
  // about as many bytes as any other, all ranks call this, and errors are also those of
  // communication.
  absl::Status CopyState(Stream& stream, Buffer& copy) const;
  // What CopyState has copied, in canonical form.  It may lie in the copy.  Any thread, also while
  // the model is in use.
  struct UnpackedState {
    HostTensors weights, optimizer, carried;  // parameters and buffers; slots; this rank's rows
  };
  absl::Status UnpackState(std::span<std::byte> copy, UnpackedState& state) const;
  // The digest `train` prints: of the bytes of what files have, in the order of its names.  A
  // parameter at a time, for there may not be room for a copy of all.
  absl::StatusOr<std::string> Sha256OfWeights(Stream& stream) const;

 private:
  Model(ModelPlan plan, Device& device, ProcessGroup* communication)
      : plan_(std::move(plan)), device_(device), communication_(communication) {}
  absl::Status BindNets();
  int buckets() const { return static_cast<int>(plan_.train->order.buckets.size()); }
  const Net& any() const { return train_ ? *train_ : *test_.front(); }
  absl::Status LoadParameter(Stream& stream, size_t index, const TensorFile& weights);
  absl::Status Upload(Stream& stream, std::span<const std::byte> bytes, Tensor to);
  // `bytes`: in the parameter's layout, of FileDType.  Rounds them where it is of 16 bits, and
  // keeps what this rank updates of them as its master.
  absl::Status SetParameter(Stream& stream, size_t index, std::span<const std::byte> bytes);
  // Whether this rank is to write the values of a parameter.
  bool writes(size_t index) const;
  // The end of what writes values.
  absl::Status ValuesWritten() const;
  absl::Status ClearSlotsAndCarried(Stream& stream);
  absl::Status LoadSlots(Stream& stream, int bucket, const TensorFiles& optimizer);
  // From element `at` on of what this rank updates of a bucket; kind: of a slot, or of masters.
  absl::Status SetSlot(Stream& stream, int bucket, int kind, int64_t at,
                       std::span<const std::byte> bytes);
  // Of a whole bucket; begins at `to`, and where ranks share it out waits for it.
  absl::Status CopySlot(Stream& stream, int bucket, int kind, std::byte* to) const;
  // As files have it.  Of a value that lies in device memory, or in the masters of a bucket, a
  // copy: of those of a bucket the next parameters', too, which all ranks ask for in one order.
  struct Storage {
    std::vector<std::byte> bytes;
    int bucket = -1;  // whose masters they are
  };
  absl::Status ReadValue(Stream& stream, size_t index, Storage& storage, HostTensors& value) const;
  // The parameters in a bucket of it, which CopySlot has copied.
  absl::Status UnpackSlot(int bucket, std::span<std::byte> whole, absl::string_view suffix,
                          HostTensors& to) const;

  ModelPlan plan_;
  Device& device_;
  ProcessGroup* const communication_;
  Buffer device_arena_, communication_arena_;  // the latter empty if ranks share it
  Buffer pages_;                               // empty if nothing pages
  std::unique_ptr<PageFile> page_file_;        // null if nothing is on disk
  std::span<std::byte> parameters_;            // of one copy
  NetMemory memory_;
  std::unique_ptr<Net> train_, accumulating_;  // the latter null if it would be the same
  std::vector<std::unique_ptr<Net>> test_;
  std::unique_ptr<Pager> train_pager_, accumulating_pager_;
  std::vector<std::unique_ptr<Pager>> test_pagers_;
};

}  // namespace gyre
