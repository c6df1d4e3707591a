// model.h: the nets of a ModelPlan bound to memory, over one set of parameters in one arena.  They
// run one after another, so their activations share memory.  Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "distributed/process_group.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/model/model_plan.h"
#include "engine/training/net/run/net.h"
#include "memory/pager/pager.h"

namespace gyre {

// A carried state's name in checkpoint files, "lstm.hidden_l0[6:12]" (carried_rows.cc).
std::string NameInFile(const Net::Carried& carried);

// The bytes of these rows, from any rank's files.  Errors: NotFound if the files lack the state,
// InvalidArgument for another shape, type or number of rows, DataLoss for missing or repeated rows.
absl::StatusOr<std::vector<std::byte>> ReadRows(const TensorFiles& files,
                                                const Net::Carried& carried);

// Errors: Internal, naming the first tensor with a non-finite value.
absl::Status CheckFiniteTensors(std::span<const NamedTensor> tensors);

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
  // The nets of a player's steps (RunShape), or of all that trains.
  struct TurnNets {
    struct BoundNet {
      std::unique_ptr<Net> net;
      std::unique_ptr<Pager> pager;  // null if nothing pages
    };
    BoundNet last;    // of a step's last iteration, which updates
    BoundNet others;  // of those before it.  Empty if a step has one

    const Net& net() const { return *last.net; }
    Pager* pager() const { return last.pager.get(); }
    // Of a step's first iteration, which awaits the last step's values.
    const BoundNet& first() const { return others.net ? others : last; }
  };
  const TurnNets& turn(int player) const { return turns_[static_cast<size_t>(player)]; }
  int turns() const { return static_cast<int>(turns_.size()); }
  // Lets the iterations of this player come next.  Precondition: the last one enqueued updates.
  absl::Status TakeTurn(int player, Stream& stream);
  // Of the first turn.
  const Net& train() const { return turn(0).net(); }
  // Whether ranks share one copy of the parameters.
  bool one_copy() const { return !parameters_.empty(); }
  const std::vector<std::unique_ptr<Net>>& test() const { return test_; }
  // The pager of train() or test()[index].  Null if the plan does not page.
  Pager* train_pager() const { return turn(0).pager(); }
  Pager* test_pager(size_t index) const { return test_pagers_[index].get(); }
  // Appends a testing net (gyre::AddTest), and binds all of test() anew: in larger memory if it
  // needs that.  Waits for the stream.  Errors: also those of allocation, which change nothing.
  absl::Status AddTest(const Parsed<NetConfig>& net, int64_t batch, Stream& stream);
  // PlanPagesAnew, with measured speeds of copies and, if it has pages, of the disk.  If it returns
  // true, train() and the pagers are replaced.  Precondition: nothing is in flight.
  // Errors: those of allocation.
  absl::StatusOr<bool> PlanPagesAnew(Stream& stream, std::span<const double> step_seconds);
  // Enqueues copies that bring parameters, slots and carried rows home, for work other than an
  // iteration.  Precondition: the last iteration enqueued updates.
  absl::Status BringHome(Stream& stream) const {
    Pager* const pager = turns_.empty() ? nullptr : turn(turn_).pager();
    return pager ? pager->BringHome(stream) : absl::OkStatus();
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
  // and only those that this rank updates.  Slots that it lacks are zero, and averages the values.
  // Ranks as Initialize.  Precondition: CheckLoad.
  // Errors: those of PackParameter and TensorFiles::Read.
  absl::Status Load(Stream& stream, const TensorFile& weights, const TensorFiles* optimizer);
  // Whether the optimizer keeps averages of the trained parameters, a slot of kAverageSlot.
  bool has_averages() const { return average_kind() >= 0; }
  // Sets the averages to the values that a run starts from.  Precondition: has_averages.
  absl::Status BeginAverages(Stream& stream);
  // Puts the averages in the places of their parameters, and the values back, to the bit.  In
  // between the slots of averages may hold values.  All ranks call both. Precondition:
  // has_averages, and all ranks have all values and their slots (TrainingStep::Settle).  Errors:
  // those of communication.
  absl::Status PutAverages(Stream& stream);
  absl::Status PutValuesBack(Stream& stream);
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
  // Hands over the tensors of the weights file, in the order of its names.  Reads one parameter at
  // a time, because memory may not hold a copy of all.  All ranks call it.
  absl::Status EachValue(Stream& stream, const std::function<void(const NamedTensor&)>& use) const;
  // The digest that `train` prints, of these tensors.
  absl::StatusOr<std::string> Sha256OfWeights(Stream& stream) const;

 private:
  Model(ModelPlan plan, Device& device, ProcessGroup* communication)
      : plan_(std::move(plan)), device_(device), communication_(communication) {}
  absl::Status BindNets();
  int buckets() const { return static_cast<int>(plan_.train->order.buckets.size()); }
  const Net& any() const { return turns_.empty() ? *test_.front() : train(); }
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
  int average_kind() const;  // -1: none
  // Sets the averages of this rank's shard of a bucket to the values.
  absl::Status ValuesToAverages(Stream& stream, int bucket);
  // Of a bucket with masters the slot `kind_beside_masters`, else the averages.
  absl::Status PutInPlace(Stream& stream, int kind_beside_masters);
  // Starts a copy of a whole bucket's slot to `to`.  With a sharded optimizer waits for it.
  absl::Status CopySlot(Stream& stream, int bucket, int kind, std::byte* to) const;
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
  std::vector<TurnNets> turns_;
  int turn_ = 0;  // of the last iteration
  std::vector<std::unique_ptr<Net>> test_;
  std::vector<std::unique_ptr<Pager>> test_pagers_;
};

}  // namespace gyre
