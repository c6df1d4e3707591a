// shard.h: the rows of all tables that this rank owns.  A state machine applies the updates of
// workers, and gathers and sends the rows that they read, as README.md says.  Used by one thread
// at a time.
//
// An empty slice tells the clock of a worker that reads a chunk and updates no row there.  Slices
// of other ranks are staged in host memory, and a device copies them through two buffers in each
// direction.  This rank's own slices stay on the device with `background`.  A pass takes time for
// messages under way and for chunks that are due.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/parameter_server/row_index.h"
#include "distributed/parameter_server/tables.h"
#include "distributed/parameter_server/transfer.h"

namespace gyre {

// This rank's shard of a table, or a chunk of it, in device memory.
struct OwnedRows {
  Tensor values;
  // TableUpdate::slots() tensors of the shape of `values`, in AccumulateDType, zero at first.
  std::vector<Tensor> slots;
  int64_t first = 0;  // index of the first row in the table
  int64_t width = 0;
  int chunk = 0;  // within the shard, from 0
};

// Immutable.  Called by the driving thread.
class TableUpdate {
 public:
  virtual ~TableUpdate() = default;
  virtual int slots() const { return 0; }
  // Changes the rows of a chunk at `places` by `sent`, and enqueues on stream.  With kBsp `sent` is
  // the sum of an iteration's updates, added in the order of ranks.  Otherwise it is the update of
  // one worker.  `clock` is its iteration, from 0, which may differ between chunks.
  virtual absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices places, Tensor sent,
                             int64_t clock) const = 0;
};

// values += factor * sent.  Minus the learning rate as the factor gives gradient descent.
std::unique_ptr<TableUpdate> NewAddition(double factor);

// The caller's lists of tensors whose data the allocator sets.
struct Wanted {
  std::vector<Tensor*>& device;
  std::vector<Tensor*>& host;
};

// Of all ranks of a server.
struct ServerOptions {
  Sync sync = Sync::kBsp;
  // With kSsp a read of iteration c finds all updates of iterations before c - staleness.
  int staleness = 0;
  // The last `servers` ranks own rows and access none.  server_shards.h gives each rank's shard.
  int servers = 0;
  // With kBsp: owners apply an iteration's sums only after Apply.
  bool gated = false;
  // False: Read copies values in and Update copies gradients out, on `compute`.  The callers'
  // memory is then used only between Read and PostRead, and between PreUpdate and Update.
  bool background = true;
  // A cpu device that outlives the server.  Rows are then in host memory, where the host updates
  // them, and nothing is copied in the background.  Null: rows are on the device.
  Device* in_host_memory = nullptr;
  // Size of a chunk, above 0.  A rank begins no send while about this much of its updates, or of
  // its answers to one worker, is under way.  The next send is then the most urgent, and all
  // receivers progress alike although TCP streams share a link unequally.
  size_t chunk_bytes = kServerChunkBytes;
};

class Shard {
 public:
  // communicator and device outlive the result.  Errors: those of the device.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(Communicator& communicator, Device& device,
                                                       const ServerOptions& options);

  // Order of calls:
  //   AddTable        for all tables
  //   AddSlice        worker by worker, in the order of its accesses
  //   Prepare, Clear  before and after memory is allocated
  //   Progress        once values are set

  // Returns the number of the first chunk, which the others follow.  `chunks` are the whole shard.
  int AddTable(const TableSpec& table, std::span<const ElementRange> chunks,
               const TableUpdate& update);
  // Returns the slice's number, among updates or reads.  The read with the least tag is a worker's
  // most urgent.  `staged` is null for another rank's worker.  This rank's own needs no message,
  // but Deliver and HasGathered.  Prepare adds *staged to `wanted`.
  int AddSlice(bool update, int worker, int chunk, const RowSelection& slice, int tag,
               Tensor* staged);
  absl::Status Prepare(Wanted& wanted);
  // Finds the memory of chunks and sets all values and optimizer slots to zero.  Blocks.
  absl::Status Clear();

  const OwnedRows& owned(int table) const { return tables_[table].rows; }

  // Does all that needs no waiting.  Errors: those of messages and of the device.
  absl::StatusOr<Advance> Progress();

  // The slice of this rank's own worker is in its staged memory.
  void Deliver(int update) { Count(updates_[update], updates_[update].received); }
  // Whether the update was applied `iterations` times, so that its memory may be written again.
  absl::StatusOr<bool> HasConsumed(int update, int64_t iterations) const;
  // Whether the slice was gathered `iterations` times, and may be read.
  absl::StatusOr<bool> HasGathered(int read, int64_t iterations) const;
  // This rank's worker has copied the slice, which may be gathered again.
  void Take(int read) { Count(reads_[read], reads_[read].sent); }

  // With `gated`: whether all updates of iterations before `clock` are summed.  The shard then
  // enqueues nothing more until Release.
  bool summed(int64_t clock) const;
  const Tensor& sum(int table) const { return tables_[table].sum; }
  // Allows the sums of one more iteration to be applied.  Any thread.
  void Release() { ++released_; }
  // A worker whose update the sums before `clock` need, or kNobody.
  int AwaitedForSums(int64_t clock) const;

  // Whether all updates of iterations before `clock` are applied and their answers sent.  The
  // device has done so after Synchronize.
  bool settled(int64_t clock) const;
  absl::Status Synchronize() { return work_->Synchronize(); }
  // The slowest worker, if another waits for its updates, or kNobody.
  int AwaitedWorker() const;
  // Cancels the receives of further updates.  Precondition: settled.
  absl::Status Withdraw();
  int64_t bytes_sent() const { return bytes_sent_; }  // any thread

 private:
  struct Table {
    TableSpec spec;
    const TableUpdate* update = nullptr;
    OwnedRows rows;
    Tensor sum = {};     // kBsp: of the rows that any worker updates
    Tensor adding = {};  // the sum in F32, before it is rounded; null unless rounds()
    bool rounds() const { return AccumulateDType(spec.dtype) != spec.dtype; }
  };
  struct TableChunk {
    const Table* table = nullptr;
    OwnedRows rows;                   // the chunk's, in the table's
    std::vector<int> updates, reads;  // that touch it; updates in the order of workers
    // The rows that any worker updates.  With kBsp also their sum, in the table's.
    RowList touched;
    int touched_places = 0;
    Tensor sum = {}, adding = {};     // adding is sum if nothing is rounded
    size_t next = 0;                  // index in `updates` of the next to be added
    std::atomic<int64_t> summed = 0;  // iterations; read by any thread
    int64_t applied = 0;              // iterations, at most `summed`
    bool due = true;                  // whether Work may find something to do
    int ready = 0;                    // answers that are gathered and not yet begun to be sent
    // The least tag of `reads`.
    int first_read = std::numeric_limits<int>::max();
  };
  struct WorkerSlice {
    int worker = 0, chunk = 0, tag = 0;
    RowList rows;    // within the chunk
    int places = 0;  // number of `rows` in index_
    Tensor own_host = {};
    Tensor* staged = nullptr;  // &own_host, or the own worker's
    Transfer transfer;
    bool travels() const { return staged == &own_host; }
    size_t bytes() const { return staged->bytes(); }
  };
  struct UpdateSlice : WorkerSlice {
    int sum_places = 0;                 // number in index_ of its rows' places in `touched`
    std::unique_ptr<Event> used;        // after the last use of *staged
    int64_t received = 0, applied = 0;  // iterations
  };
  struct ReadSlice : WorkerSlice {
    std::unique_ptr<Event> ready;
    int64_t gathered = 0, sent = 0;
  };

  // A device buffer through which staged slices are copied.
  struct Copy {
    Tensor memory = {};                   // bytes
    std::unique_ptr<Event> filled, free;  // after its writer, after its reader
  };
  struct Copies {
    std::array<Copy, 2> all;
    size_t used = 0;  // calls of Next
    Copy& Next() { return all[used++ % all.size()]; }
  };

  Shard(Communicator& communicator, Device& device, const ServerOptions& options)
      : communicator_(communicator), device_(device), options_(options) {}
  const Table& TableOf(const WorkerSlice& slice) const { return *chunks_[slice.chunk].table; }
  void Want(WorkerSlice& slice, DType dtype, Wanted& wanted);
  void OrderByUrgency();
  // Adds buffers for the largest of the slices that are copied.
  template <typename Slices>
  absl::Status MakeCopies(const Slices& slices, Copies& copies, Wanted& wanted);
  // Whether the slice's staged memory is copied to or from a buffer on the device.
  bool IsCopied(const WorkerSlice& slice) const {
    return (slice.travels() || !options_.background) && device_.kind() != DeviceKind::kCpu;
  }
  // Calls use(sent), which enqueues on work_.  `sent` is the slice where the device can read it.
  template <typename Use>
  absl::Status Receive(UpdateSlice& slice, const Use& use);
  // staleness.cc.  Updates of the worker, or for kNobody of the slowest, that are applied.
  int64_t Clock(const TableChunk& chunk, int worker) const;
  bool MayApply(const TableChunk& chunk, const UpdateSlice& slice) const;
  bool MayAnswer(const TableChunk& chunk, const ReadSlice& slice) const;
  absl::Status Apply(TableChunk& chunk, UpdateSlice& slice);
  absl::Status AddToSum(TableChunk& chunk, UpdateSlice& slice);
  absl::Status ApplyAlone(TableChunk& chunk, UpdateSlice& slice);
  absl::Status ApplySum(TableChunk& chunk);
  absl::Status Gather(TableChunk& chunk, ReadSlice& slice);
  // Increments a counter of the slice, and marks its chunk as due.
  void Count(const WorkerSlice& slice, int64_t& of_slice) {
    ++of_slice;
    chunks_[slice.chunk].due = true;
  }
  absl::StatusOr<bool> Await(UpdateSlice& slice);
  // Does all that needs no waiting.  Returns 0 if there was nothing, else at least the bytes that
  // were applied and gathered.
  absl::StatusOr<size_t> Work(TableChunk& chunk);
  absl::StatusOr<bool> Send(ReadSlice& slice);
  absl::StatusOr<bool> SendAnswers();

  Communicator& communicator_;
  Device& device_;
  const ServerOptions options_;
  std::unique_ptr<Stream> in_, work_, out_;
  RowIndex index_;
  std::deque<Table> tables_;  // a deque, so that pointers stay valid
  std::deque<TableChunk> chunks_;
  std::vector<TableChunk*> urgent_first_;
  struct Answers {
    size_t under_way = 0;       // bytes
    int64_t iteration = 0;      // of the first answer that has not begun
    int slices = 0, begun = 0;  // all that are sent; begun in `iteration`
  };
  std::vector<Answers> answers_;  // by worker
  std::vector<int> awaited_;      // updates whose slices have not arrived
  std::vector<int> leaving_;      // reads whose slices are being sent
  std::deque<UpdateSlice> updates_;
  std::deque<ReadSlice> reads_;
  Copies uploads_, downloads_;
  Tensor together_ = {};  // bytes: an update of kSsp or kAsync, widened from its wire type
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> released_ = 0;  // iterations
  int64_t seen_released_ = 0;          // by the last Progress
};

}  // namespace gyre
