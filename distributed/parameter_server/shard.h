// shard.h: the rows of all tables that this rank owns: what workers send for them is applied, and
// what they read is gathered and sent, as a state machine.
//
// A table's rows here are cut into chunks, each of which goes its way by itself.  A worker w's
// access meets a chunk as a slice: those of its rows that are there.  In iteration c each of its
// updates' slices comes once, and each of its reads' slices goes once, as the answer to its updates
// of iteration c - 1: when these are applied, and what Sync asks of the other workers.  So no
// requests travel, and what a worker reads has its own updates.  Of a chunk of which a worker's
// updates have no row, that it reads, comes an empty slice: its clock.
//
// What workers read first (of the chunks that one reads first, by its own order) has its updates
// applied first, and is sent first: with about a chunk of answers under way to a worker none
// begins, so that what could leave waits for what is more urgent.  A worker's begin in the order of
// iterations: what takes them depends on iterations before alone, so nobody waits in a circle.
//
// What travels is staged: host memory, which messages can reach.  On a device that is not the host
// it is copied there and back through two places each way: while one is used the other is copied.
// What is of this rank's own worker stays on the device, or is staged, too.
// A pass of Progress costs what may have changed since the last one: messages under way, and chunks
// that are due, of which something has come or gone.
// Used by one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/parameter_server/row_index.h"
#include "distributed/parameter_server/table_update.h"
#include "distributed/parameter_server/tables.h"
#include "distributed/parameter_server/transfer.h"

namespace gyre {

// Memory that is to be, by what will point there.
struct Wanted {
  std::vector<Tensor*> device, host;
};

struct ShardOptions {
  Sync sync = Sync::kBsp;
  int staleness = 0;
  bool gated = false;  // of bsp: a sum is applied when Release says so
  bool stages_own = false;
  size_t chunk_bytes = kServerChunkBytes;  // as ParameterServer's
};

class Shard {
 public:
  // Both outlive the result.  Errors: those of the device.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(Communicator& communicator, Device& device,
                                                       const ShardOptions& options);

  // First all tables, then all slices, by worker, each worker's in the order of all its accesses;
  // then Prepare; then, with the memory there, Clear; then, with the values in it, Progress.

  // chunks: they are the part.  Returns the first one's number, which the others' follow.
  int AddTable(const TableSpec& table, std::span<const ElementRange> chunks,
               const TableUpdate& update);
  // tag: of its messages; of a worker's reads the one with the least is the most urgent.  staged:
  // this rank's own worker's: where its slice is to lie, on the device, or in host memory; no
  // message then, but Deliver and HasGathered.  Returns its number.
  int AddUpdate(int worker, int chunk, const RowSelection& slice, int tag,
                Tensor* staged = nullptr);
  int AddRead(int worker, int chunk, const RowSelection& slice, int tag, Tensor* staged = nullptr);
  absl::Status Prepare(Wanted& wanted);
  // All values and slots are zeros then.  Blocks.
  absl::Status Clear();

  const OwnedRows& owned(int table) const { return tables_[table].rows; }

  // Does what can be done.  Errors: those of messages and of the device.
  absl::StatusOr<Advance> Progress();

  // This rank's own worker's slice is there.
  void Deliver(int update) { Count(updates_[update], updates_[update].received); }
  // Whether it was applied so often, and may be written again.
  absl::StatusOr<bool> HasConsumed(int update, int64_t iterations) const;
  // Whether the slice was gathered so often, and may be read.
  absl::StatusOr<bool> HasGathered(int read, int64_t iterations) const;
  // This rank's worker has taken it: it may be gathered again.
  void Take(int read) { Count(reads_[read], reads_[read].sent); }

  // Gated: whether all updates of iterations before `clock` are summed; until Release this shard
  // enqueues nothing more.
  bool summed(int64_t clock) const;
  const Tensor& sum(int table) const { return tables_[table].sum; }
  // The sums of one iteration more may be applied.  Any thread.
  void Release() { ++released_; }
  // A worker whose updates the sums of an iteration wait for; kNobody: none.
  int AwaitedForSums(int64_t clock) const;

  // Whether all updates of iterations before `clock` are applied, and what they answer is sent;
  // after it Synchronize tells that the device has done so.
  bool settled(int64_t clock) const;
  absl::Status Synchronize() { return work_->Synchronize(); }
  // A worker whose updates others wait for; kNobody: none.
  int AwaitedWorker() const;
  // Settled, ends what is expected of workers.
  absl::Status Withdraw();
  int64_t bytes_sent() const { return bytes_sent_; }  // any thread

 private:
  struct Table {
    TableSpec spec;
    const TableUpdate* update = nullptr;
    OwnedRows rows;
    Tensor sum = {};  // of bsp: of the rows that anybody updates
    // Of 16 bits, until it is all and rounded: F32; else null.
    Tensor adding = {};
    bool rounds() const { return AccumulateDType(spec.dtype) != spec.dtype; }
  };
  struct TableChunk {
    const Table* table = nullptr;
    OwnedRows rows;                   // of the table's
    std::vector<int> updates, reads;  // that touch it; updates in the order of workers
    // Of bsp: the rows that anybody updates, their sum, and whose turn it is.
    RowList touched;
    int touched_places = 0;
    Tensor sum = {}, adding = {};     // of the table's; not rounded: adding is the sum
    size_t next = 0;                  // of `updates`
    std::atomic<int64_t> summed = 0;  // iterations; read by any thread
    int64_t applied = 0;              // of these
    bool due = true;                  // something may be done
    int ready = 0;                    // answers that are gathered, and have not begun to leave
  };
  struct WorkerSlice {
    int worker = 0, chunk = 0, tag = 0;
    RowList rows;    // of the chunk
    int places = 0;  // of these
    Tensor own_host = {};
    Tensor* staged = nullptr;  // own_host, or the worker's
    Transfer transfer;
    bool travels() const { return staged == &own_host; }
    size_t bytes() const { return staged->bytes(); }
  };
  struct UpdateSlice : WorkerSlice {
    int sum_places = 0;                 // of its rows among those touched
    std::unique_ptr<Event> used;        // what is staged
    int64_t received = 0, applied = 0;  // iterations
  };
  struct ReadSlice : WorkerSlice {
    std::unique_ptr<Event> ready;
    int64_t gathered = 0, sent = 0;
  };

  // Where what is staged is copied to, or from.
  struct Copy {
    Tensor memory = {};                   // bytes
    std::unique_ptr<Event> filled, free;  // it has what is to be used; that was used
  };
  struct Copies {
    std::array<Copy, 2> all;
    size_t used = 0;  // how often
    Copy& Next() { return all[used++ % all.size()]; }
  };

  Shard(Communicator& communicator, Device& device, const ShardOptions& options)
      : communicator_(communicator), device_(device), options_(options) {}
  static void Describe(WorkerSlice& added, int worker, int chunk, const RowSelection& slice,
                       int tag, Tensor* staged);
  const Table& TableOf(const WorkerSlice& slice) const { return *chunks_[slice.chunk].table; }
  void Want(WorkerSlice& slice, DType dtype, Wanted& wanted);
  void OrderByUrgency();
  // For each of these slices that is copied.
  template <typename Slices>
  absl::Status MakeCopies(const Slices& slices, Copies& copies, Wanted& wanted);
  // Whether what is staged is copied.
  bool IsCopied(const WorkerSlice& slice) const {
    return (slice.travels() || options_.stages_own) && device_.kind() != DeviceKind::kCpu;
  }
  // Calls use(sent), which enqueues on work_; sent: where the device has what is staged.
  template <typename Use>
  absl::Status Receive(UpdateSlice& slice, const Use& use);
  int64_t Clock(const TableChunk& chunk, int worker) const;  // kNobody: the slowest's
  bool MayApply(const TableChunk& chunk, const UpdateSlice& slice) const;
  bool MayAnswer(const TableChunk& chunk, const ReadSlice& slice) const;
  absl::Status Apply(TableChunk& chunk, UpdateSlice& slice);
  absl::Status AddToSum(TableChunk& chunk, UpdateSlice& slice);
  absl::Status ApplyAlone(TableChunk& chunk, UpdateSlice& slice);
  absl::Status ApplySum(TableChunk& chunk);
  absl::Status Gather(TableChunk& chunk, ReadSlice& slice);
  // One more of what a slice counts.
  void Count(const WorkerSlice& slice, int64_t& of_slice) {
    ++of_slice;
    chunks_[slice.chunk].due = true;
  }
  absl::StatusOr<bool> Await(UpdateSlice& slice);
  // Does all that can be done of a chunk.  Returns the bytes of what was applied and gathered, or
  // more than 0.
  absl::StatusOr<size_t> Work(TableChunk& chunk);
  absl::StatusOr<bool> Send(ReadSlice& slice);
  absl::StatusOr<bool> SendAnswers();

  Communicator& communicator_;
  Device& device_;
  const ShardOptions options_;
  std::unique_ptr<Stream> in_, work_, out_;
  RowIndex index_;
  std::deque<Table> tables_;  // where they are, they stay
  std::deque<TableChunk> chunks_;
  std::vector<TableChunk*> urgent_first_;
  struct Answers {
    size_t under_way = 0;       // bytes
    int64_t iteration = 0;      // of the first that has not begun
    int slices = 0, begun = 0;  // all that travel; of this iteration
  };
  std::vector<Answers> answers_;  // by worker
  std::vector<int> awaited_;      // updates whose slice has not come
  std::vector<int> leaving_;      // reads whose slice is under way
  std::deque<UpdateSlice> updates_;
  std::deque<ReadSlice> reads_;
  Copies uploads_, downloads_;
  Tensor together_ = {};  // bytes
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> released_ = 0;  // iterations
  int64_t seen_released_ = 0;          // by the last pass
};

}  // namespace gyre
