// parameter_server.h: tables that ranks read and update together, for any program with a device.
//
// Each row has an owner, whose device memory holds it and who applies the updates to it.  A program
// declares the accesses of one iteration once, in the order of its Reads (GeePS's virtual
// iteration).  Rows then move in the background, in the order of reads.  The stream waits by
// events.  The host waits in Read for values, and in Update for the send before.
//
// All ranks make the same calls, except for accesses, of which servers have none.  Used by the
// thread that owns the stream.  docs/parameter_server.md has an example.
// Source: Cui et al. 2016, "GeePS", sections 3 and 4.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/parameter_server/access.h"
#include "distributed/parameter_server/shard.h"
#include "distributed/process_group.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

class ParameterServer final : public Service {
 public:
  using Options = ServerOptions;  // shard.h

  // All arguments outlive the result.  Errors: InvalidArgument for impossible options.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Create(ProcessGroup& group,
                                                                 Device& device, Stream& compute,
                                                                 const Options& options);
  // Precondition: Stop was called, or an error was returned.
  ~ParameterServer() override;

  // Precondition: Prepare was not called.  `update` outlives this object.
  // Errors: InvalidArgument for 2^31 rows or more, a negative size, or a type that is not real.
  // Also for parts that are not the table's, and for a wire type unless it is F16 or BF16 for F32.
  absl::StatusOr<int> AddTable(const TableSpec& table, const TableUpdate& update);

  // Declares a read that a worker makes once in each iteration.  `to` is device memory of shape
  // [rows, width], the caller's from Read to PostRead and this object's otherwise.  It may name a
  // row twice.  Errors: InvalidArgument for a row out of range, other memory, or on a server.
  absl::StatusOr<int> AddRead(int table, const RowList& rows, Tensor to);
  // Declares an update likewise.  `from` is the caller's from PreUpdate to Update.
  // Errors: also InvalidArgument for a row that is named twice.
  absl::StatusOr<int> AddUpdate(int table, const RowList& rows, Tensor from);

  // Exchanges the declared accesses, allocates, and sets all values to zero.  Blocks.
  // Errors: FailedPrecondition if ranks have other tables or options, ResourceExhausted for more
  // chunks than message tags, Internal for a malformed declaration.
  absl::Status Prepare();
  size_t device_bytes() const { return device_memory_.bytes(); }
  // This rank's rows of a table, after Prepare.  They may be read and written before Start, and
  // read between Drain and the next access of any rank.
  const OwnedRows& owned(int table) const { return shard_->owned(table); }
  // Starts moving rows, after the work that is enqueued on `compute`.  Blocks.
  absl::Status Start();

  // Errors of all five: FailedPrecondition for a call that is not due, and any rank's first error.

  // Blocks until the rows have arrived.  Work that is enqueued afterwards finds them in `to`.
  absl::Status Read(int read);
  // Work that is enqueued afterwards does not read `to`, so the next values may arrive there.
  absl::Status PostRead(int read);
  // Work that is enqueued afterwards may write `from`.  Enqueues a wait.
  absl::Status PreUpdate(int update);
  // `from` is written by the work enqueued so far.  Blocks until the update before has left.
  absl::Status Update(int update);
  absl::Status Clock();
  int64_t clock() const { return clock_; }

  // With `gated`, on all ranks once in each iteration, between the updates and Clock.  Blocks until
  // all updates of this rank's rows are summed.  sum(table) may be read until Apply.
  absl::Status AwaitSums();
  // The sums of the rows that any rank updates, in order, in device memory.
  const Tensor& sum(int table) const { return shard_->sum(table); }
  absl::Status Apply();

  // Blocks until the updates of all ranks are applied.  All ranks call it at the same clock.
  absl::Status Drain();
  // Drains, then copies the whole table to host memory on every rank.
  absl::Status Get(int table, void* to);
  // Drains and ends the service.  Nothing else follows.
  absl::Status Stop();
  // Ends the service in place of Stop, at any clocks and after any calls.  No message comes after
  // it.  This server is unusable, and no other can start on this group.
  absl::Status Abandon();

  // Bytes of rows that this rank has sent to other ranks.
  int64_t bytes_sent() const;

  absl::StatusOr<Advance> Progress(Communicator& communicator) override;

 private:
  struct Declared {
    bool update = false;
    int table = 0;
    RowList rows;
  };
  using DeclaredByRank = std::vector<std::vector<Declared>>;
  struct TableChunks {
    std::vector<ElementRange> all;  // in the order of owners
    std::vector<size_t> first;      // by owner: index of its first chunk in `all`; then the total
    int most = 0;                   // the largest number of chunks of an owner
    int of_shard = 0;               // the shard's number of this rank's first chunk
  };

  ParameterServer(ProcessGroup& group, Device& device, Stream& compute, const Options& options);
  bool serves_only() const { return group_.rank() >= group_.size() - options_.servers; }
  template <typename Access>
  absl::StatusOr<int> Declare(std::vector<std::unique_ptr<Access>>& accesses, int table,
                              const RowList& rows, void* memory);
  absl::Status CheckAccess(const char* kind, int table, const RowList& rows, Tensor memory) const;
  absl::Status Agree(DeclaredByRank& declared);
  absl::Status ReadDeclared(std::string_view bytes, std::vector<Declared>& declared) const;
  std::vector<ElementRange> Parts(const TableSpec& table) const;
  TableChunks ChunksOf(int table, const DeclaredByRank& declared) const;
  absl::Status MeetShard(const DeclaredByRank& declared);
  absl::Status MeetWorker(int worker, const std::vector<Declared>& accesses,
                          std::span<const TableChunks> tables, std::vector<Tensor*>& on_host);
  absl::Status CheckTags(const DeclaredByRank& declared, std::span<const TableChunks> tables) const;
  void OrderUpdates();
  absl::Status Allocate(MemoryKind kind, std::span<Tensor* const> tensors, Buffer& memory);
  bool in_host_memory() const { return options_.in_host_memory != nullptr; }
  bool in_background() const { return options_.background && !in_host_memory(); }
  absl::Status Due(const RowAccess& access, const char* call, bool due) const;
  absl::Status Push(UpdateAccess& update);
  absl::Status SendAll(const char* call);  // all of an iteration; call: named if it is too early
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
  size_t declared_updates_ = 0;  // updates_ beyond these only send the clock
  int max_tag_ = 0;
  // The chunks of updates, as declared, and in the order of their tables' first reads.
  struct Leaving {
    const UpdateAccess* access = nullptr;
    UpdateChunk* chunk = nullptr;
  };
  std::vector<Leaving> leaving_, urgent_first_;
  RowIndex index_;
  Tensor packed_reads_ = {}, packed_updates_ = {};  // bytes
  Buffer device_memory_, host_memory_;
  std::unique_ptr<Stream> out_, in_;  // null unless in_background()
  std::unique_ptr<Shard> shard_;
  bool prepared_ = false, serving_ = false;
  int64_t clock_ = 0;
  std::atomic<int64_t> drain_ = -1, drained_ = -1;  // clocks requested and reached
  std::atomic<int64_t> awaited_since_ms_ = -1;      // -1: no call waits
  int awaited_ = kNobody;                           // as of awaited_at_ms_
  int64_t awaited_at_ms_ = -1;
  int64_t applied_ = 0;                     // iterations in which Apply was called
  std::atomic<int64_t> sums_awaited_ = -1;  // the clock after the awaited sums; -1: none
};

}  // namespace gyre
