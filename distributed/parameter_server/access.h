// access.h: a worker's reads and updates, each of rows of one table in the caller's memory.
//
// Each chunk is packed by owner and staged in host memory.  The thread of the compute stream uses
// the accesses, and the driving thread calls Progress.  Counts and events synchronize them.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "distributed/parameter_server/row_index.h"
#include "distributed/parameter_server/shard.h"
#include "distributed/parameter_server/tables.h"
#include "distributed/parameter_server/transfer.h"

namespace gyre {

struct RowAccess {
  int number = 0;  // among all accesses of this rank
  int table = 0;
  RowList rows;
  Tensor memory = {};           // the caller's
  std::unique_ptr<Event> used;  // after the caller's last use of the memory
};

// The rows of an access that move at once, one chunk of each owner.
struct RowChunk {
  struct OwnerSlice {
    bool meets = false;  // whether messages are exchanged with the owner
    // Whether rows are packed on the device, because they are apart or change their type.
    bool packs = false;
    int places = 0;      // number of the rows' places in the index
    Tensor staged = {};  // the memory of messages, or that of the rank's own shard
    Transfer transfer;
  };
  int number = 0;                  // among all chunks of this rank
  std::vector<OwnerSlice> slices;  // by owner
  Tensor host = {};                // the staged slices of the other owners
  int own = -1;                    // the shard's number of this rank's slice; -1: none
  std::unique_ptr<Event> copied;   // after the last CopySlices

  // Adds the next owner's slice.
  void AddSlice(const RowSelection& slice, bool meets, const Tensor& memory, DType wire_type,
                RowIndex& index);
  // Bytes of the largest packed slice.  All accesses of a kind share the device memory for it,
  // since the work of one stream is in order.
  size_t packed_bytes() const;
  // Sets the addresses of the slices of owners but this rank.  Precondition: `host` has memory.
  void FindStaged(int rank, void* packed);
  // Enqueues the copies between the caller's memory and the staged slices.
  absl::Status CopySlices(Stream& stream, const RowIndex& index, const Tensor& memory,
                          bool to_staged) const;
  // An owner with a message under way, or kNobody.
  int AwaitedOwner() const;

 protected:
  absl::Status Begin(Communicator& communicator, RequestKind kind, int tag);
  // Whether no message is under way any more.
  absl::StatusOr<bool> MessagesDone(Communicator& communicator);
  bool under_way_ = false;
  size_t left_ = 0;  // bytes of messages under way

 private:
  void* packed_ = nullptr;
};

struct UpdateChunk : RowChunk {
  std::atomic<int64_t> sent = 0;

  // Whether the send of the last posted update has begun.
  bool has_begun(int64_t posted) const { return under_way_ || sent == posted; }
  // Begins it if the copies are done.  Returns whether it has begun.
  absl::StatusOr<bool> Begin(Communicator& communicator, Shard& shard);
  // Returns whether the send ended in this call.
  absl::StatusOr<bool> Progress(Communicator& communicator, const Shard& shard);
  // Bytes that are being sent and that owners have not received.
  size_t bytes_under_way() const { return left_; }
};

struct UpdateAccess : RowAccess {
  int64_t opened = 0;  // calls of PreUpdate
  std::atomic<int64_t> posted = 0;
  std::deque<UpdateChunk> chunks;

  bool sent() const;  // whether all that was posted is sent
  // Enqueues the copies to host memory on `out`, after the work on `compute` so far.
  // Precondition: sent().
  absl::Status Post(Stream& compute, Stream& out, const RowIndex& index);
};

struct ReadAccess;

struct ReadChunk : RowChunk {
  std::atomic<int64_t> arrived = 0;

  // Returns whether something was done.  Enqueues the copies from host memory on `in`.  Null: the
  // caller calls Upload before it increments access.opened.
  absl::StatusOr<bool> Progress(Communicator& communicator, Shard& shard, const ReadAccess& access,
                                Stream* in, const RowIndex& index);
  absl::Status Upload(Stream& in, const ReadAccess& access, const RowIndex& index);
  // Whether the values for iteration `clock` have arrived and, with `uploads`, are copied.
  bool settled(int64_t clock, bool uploads) const {
    return arrived == clock + 1 && !(uploads && uploading_);
  }

 private:
  bool uploading_ = false;
};

struct ReadAccess : RowAccess {
  std::atomic<int64_t> opened = 0, released = 0;  // calls of Read, PostRead
  std::deque<ReadChunk> chunks;

  bool has_arrived(int64_t clock) const;  // all that iteration `clock` reads
};

// Tags of a server's messages follow those of the process group's operations.
inline constexpr int kFirstServerTag = kFirstOperationTag + 64;
// The tag of messages of a worker's chunk.  A rank's updates to another and its answers to that
// rank's reads travel in one direction, so the tags of updates and reads differ.
int TagOf(bool update, int chunk);

}  // namespace gyre
