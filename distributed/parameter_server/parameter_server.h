// parameter_server.h: tables that ranks read and update together, for any program that has a
// device.  Each row has an owner, in the memory of whose device it lies, and who applies what is
// sent for it.  No layer, no net; nothing else of Gyre is needed.
//
//   auto server = *ParameterServer::Create(group, device, compute, {.sync = Sync::kBsp});
//   const int weights = *server->AddTable({"weights", rows, width}, *update);
//   const int read = *server->AddRead(weights, RowList::All(rows), values);
//   const int push = *server->AddUpdate(weights, RowList::All(rows), gradients);
//   server->Prepare();          // owned(weights) may be given values
//   server->Start();
//   while (...) {
//     server->Read(read);       // what comes now on `compute` finds the rows in `values`
//     ...
//     server->PostRead(read);   // what comes now does not look there any more
//     server->PreUpdate(push);  // what comes now may write `gradients`
//     ...
//     server->Update(push);     // they are written
//     server->Clock();
//   }
//
// An iteration's accesses are declared once, ahead, in the order of its Reads (GeePS's virtual
// iteration): which rows go from whom to whom is found then, and kept on the device; and of what
// could move that moves which is read first.  From then on rows move in the background, large
// tables in chunks: the next iteration's come while this one computes.  The stream waits by events;
// the host waits where what is read has not come, and where the update before has not left.
//
// Used by the thread that owns the stream.  All ranks make the same calls, but for accesses: which
// rows a rank accesses is its own affair, and those that only serve have none.
// Source: Cui et al. 2016, "GeePS", sections 3 and 4.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/parameter_server/access.h"
#include "distributed/parameter_server/exchange.h"
#include "distributed/parameter_server/shard.h"
#include "distributed/parameter_server/table_update.h"
#include "distributed/process_group.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

class ParameterServer final : public Service {
 public:
  struct Options {
    Sync sync = Sync::kBsp;
    // Of ssp: a worker reads what all workers have sent up to so many iterations before its last.
    int staleness = 0;
    // The last so many ranks own rows and access none.  The others own rows, too, such that all
    // have as much to send.
    int servers = 0;
    // Of bsp: owners apply an iteration's sums when Apply says so.
    bool gated = false;
    // False: callers' memory is used between Read and PostRead, and PreUpdate and Update, alone;
    // what has come is copied in by Read, and what is sent copied out by Update, on `compute`.
    bool background = true;
    // A cpu device, that outlives the server: rows lie in host memory, and it updates them there,
    // and nothing is copied in the background.  Null: rows lie on the device.
    Device* in_host_memory = nullptr;
    // Of a chunk, above 0: about what moves at once.  With as much of a rank's updates, or of its
    // answers to a worker, under way none begins, so that what begins next is the most urgent, and
    // what a rank sends comes to all at about the same time, though streams of TCP share a link
    // unequally.
    size_t chunk_bytes = kServerChunkBytes;
  };

  // All arguments outlive the result.  Errors: InvalidArgument for options.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Create(ProcessGroup& group,
                                                                 Device& device, Stream& compute,
                                                                 const Options& options);
  // After Stop, or an error.
  ~ParameterServer() override;

  // Before Prepare.  update outlives this object.  Errors: InvalidArgument for sizes below 0 or
  // beyond 2^31 rows, types that are no reals, and a wire of other values than F32, or not of 16
  // bits.
  absl::StatusOr<int> AddTable(const TableSpec& table, const TableUpdate& update);

  // Once in each iteration, on workers.  to: device memory, [rows, width]; from Read to PostRead
  // the caller's, otherwise this object's.  A row may be read twice.
  // Errors: InvalidArgument for rows that the table does not have.
  absl::StatusOr<int> AddRead(int table, const RowList& rows, Tensor to);
  // Likewise.  from: device memory; from PreUpdate to Update the caller's.  Errors: also for a row
  // that is named twice.
  absl::StatusOr<int> AddUpdate(int table, const RowList& rows, Tensor from);

  // Ranks tell each other what they access, and each takes its memory; all values are zeros.
  // Blocks.  Errors: FailedPrecondition if ranks mean different tables or options;
  // ResourceExhausted if there are more chunks than the messages' tags are enough for; Internal for
  // a rank that tells what cannot be; those of allocation.
  absl::Status Prepare();
  size_t device_bytes() const { return device_bytes_; }
  // What this rank owns of a table, after Prepare: to be read and written before Start; after Drain
  // to be read, until a rank accesses something.
  const OwnedRows& owned(int table) const { return shard_->owned(table); }
  // From now on rows move.  What was enqueued on `compute` before is done first.
  absl::Status Start();

  // Errors of all: FailedPrecondition for an access that is not due, or, in Clock, one that was
  // left out; the first of any rank.
  absl::Status Read(int read);
  absl::Status PostRead(int read);
  absl::Status PreUpdate(int update);
  absl::Status Update(int update);
  absl::Status Clock();
  int64_t clock() const { return clock_; }

  // Gated, once in each iteration, after its updates and ahead of Clock, on all ranks.  Blocks
  // until what all workers have sent for this rank's rows is summed: sum(table) may be read until
  // Apply.
  absl::Status AwaitSums();
  // Of the rows that somebody updates, in order; device memory.
  const Tensor& sum(int table) const { return shard_->sum(table); }
  absl::Status Apply();
  // Each rank's place of host memory, from that rank to all; at(rank) is as long on all ranks.  On
  // all ranks, in the same order.  Blocks.
  absl::Status Tell(const std::function<std::span<std::byte>(int rank)>& at);

  // Blocks until what all ranks have sent is applied; all have come to the same clock.
  absl::Status Drain();
  // Drain, and the whole table, to host memory of every rank.
  absl::Status Get(int table, void* to);
  // Drain; nothing else follows.
  absl::Status Stop();
  // In place of it, whatever has been called and at whatever clocks the ranks are: no message comes
  // any more, and the server is of no more use; nor can another start on this group.
  absl::Status Abandon();

  // Bytes of rows that this rank has sent to others so far.
  int64_t bytes_sent() const;

  absl::StatusOr<Advance> Progress(Communicator& communicator) override;

 private:
  // What a rank declares, for the others.
  struct Declared {
    bool update = false;
    int table = 0;
    RowList rows;
  };
  using DeclaredByRank = std::vector<std::vector<Declared>>;
  // Of a table.
  struct TableChunks {
    std::vector<ElementRange> all;  // owner by owner
    std::vector<size_t> first;      // by owner: of its own among all; and their number
    int most = 0;                   // of an owner
    int of_shard = 0;               // its number of the first of this rank's
  };

  ParameterServer(ProcessGroup& group, Device& device, Stream& compute, const Options& options);
  bool serves_only() const { return group_.rank() >= group_.size() - options_.servers; }
  absl::Status CheckAccess(const char* kind, int table, const RowList& rows, Tensor memory) const;
  absl::Status Agree(DeclaredByRank& declared);
  absl::Status ReadDeclared(std::span<const int64_t> told, std::vector<Declared>& declared) const;
  absl::Status NewUpdate(int table, const RowList& rows, void* from);
  std::vector<ElementRange> Parts(const TableSpec& table) const;
  TableChunks ChunksOf(int table, const DeclaredByRank& declared) const;
  absl::Status MeetShard(const DeclaredByRank& declared);
  absl::Status MeetWorker(int worker, const std::vector<Declared>& accesses,
                          std::span<const TableChunks> tables, Wanted& wanted);
  absl::Status CheckTags(const DeclaredByRank& declared, std::span<const TableChunks> tables) const;
  absl::StatusOr<RowChunk*> NewChunk(size_t access);
  void OrderUpdates();
  absl::Status Allocate(Wanted& wanted);
  bool in_host_memory() const { return options_.in_host_memory != nullptr; }
  bool in_background() const { return options_.background && !in_host_memory(); }
  absl::Status Due(const RowAccess& access, const char* call, bool due) const;
  absl::Status Push(UpdateAccess& update);
  absl::Status SendAll(const char* call);  // of an iteration; call: what is too early else
  absl::Status Await(const std::function<bool()>& holds);
  absl::StatusOr<bool> SendUpdates(Communicator& communicator);
  bool Settled(int64_t clock) const;
  int Awaited() const;

  ProcessGroup& group_;
  Device& device_;
  Stream& compute_;
  const Options options_;
  std::vector<TableSpec> tables_;
  std::vector<const TableUpdate*> table_updates_;
  std::vector<std::unique_ptr<ReadAccess>> reads_;
  std::vector<std::unique_ptr<UpdateAccess>> updates_;
  size_t declared_updates_ = 0;  // the rest of updates_ only tell the clock
  int max_tag_ = 0;
  // Their chunks: as declared, and by their tables' first read.
  struct Leaving {
    const UpdateAccess* access = nullptr;
    UpdateChunk* chunk = nullptr;
  };
  std::vector<Leaving> leaving_, urgent_first_;
  RowIndex index_;
  Tensor packed_reads_ = {}, packed_updates_ = {};  // bytes
  Buffer device_memory_, host_memory_;
  size_t device_bytes_ = 0;
  std::unique_ptr<Stream> out_, in_;  // in the background; else null
  std::unique_ptr<Shard> shard_;
  bool prepared_ = false, serving_ = false;
  int64_t clock_ = 0;
  std::atomic<int64_t> drain_ = -1, drained_ = -1;  // clocks: asked for, and done
  std::atomic<int64_t> awaited_since_ms_ = -1;      // -1: nothing is
  int awaited_ = kNobody;                           // when Progress last looked:
  int64_t awaited_at_ms_ = -1;
  int64_t applied_ = 0;                       // iterations that Apply was called in
  std::atomic<int64_t> sums_awaited_ = -1;    // the clock after them; -1: they are not
  PlaceOfRank telling_;                       // of the last Tell
  std::atomic<int64_t> tell_ = 0, told_ = 0;  // Tells: asked for, and done
  Giving giving_;
};

}  // namespace gyre
