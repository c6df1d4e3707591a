// access.h: a worker's end of what it reads and updates in each iteration: rows of one table, in
// memory of the caller's and, by chunk and packed by owner, in host memory, from where and to where
// messages go.
//
// What is the caller's is for the thread that owns the compute stream; Progress is for whoever
// drives; between them stand the counts of iterations and the events.
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
  int number = 0;  // among all of this rank's
  int table = 0;
  RowList rows;
  Tensor memory = {};  // the caller's
};

// Of an access what moves at once: its rows of one chunk of each owner's.
struct RowChunk {
  struct OwnerSlice {
    bool meets = false;  // whether there are messages
    // It is a run of the caller's memory, as it travels, from this row on; below 0: it is packed,
    // from these places there.
    int64_t first = -1;
    int places = 0;
    Tensor staged = {};  // where it lies for the owner, and its answer
    Transfer transfer;
  };
  int number = 0;  // among all of this rank's
  int rank = 0;    // whose slice is staged in the owner's device memory
  std::vector<OwnerSlice> slices;
  Tensor host = {};  // all other slices staged
  int own = -1;      // the shard's number of the slice that this rank owns

  // Adds the next owner's.  memory: the access's; sent_as: what travels.
  void AddSlice(const RowSelection& slice, bool meets, const Tensor& memory, DType sent_as,
                RowIndex& index);
  // Of the largest slice that is packed, in device memory that other accesses of its kind may use
  // as well: a stream's work at a time.
  size_t packed_bytes() const;
  // Once host has memory.
  void FindStaged(void* packed);
  // Between the caller's memory and where slices are staged.
  absl::Status CopySlices(Stream& stream, const RowIndex& index, const Tensor& memory,
                          bool to_staged) const;
  // The owner of a message under way; kNobody: none is.
  int AwaitedOwner() const;

 protected:
  absl::Status Begin(Communicator& communicator, Transfer::MessageKind kind, int tag);
  // Whether all have come to their end.
  absl::StatusOr<bool> MessagesDone(Communicator& communicator);
  bool under_way_ = false;
  size_t left_ = 0;  // bytes of messages under way

 private:
  void* packed_ = nullptr;
};

struct UpdateChunk : RowChunk {
  std::unique_ptr<Event> copied;  // to where it is staged
  std::atomic<int64_t> sent = 0;

  // Whether what the access has posted has begun to leave.
  bool has_begun(int64_t posted) const { return under_way_ || sent == posted; }
  // Otherwise: whether it does now.
  absl::StatusOr<bool> Begin(Communicator& communicator, Shard& shard);
  // Whether it has come to its end.
  absl::StatusOr<bool> Progress(Communicator& communicator, const Shard& shard);
  // That have left, and owners have not taken.
  size_t bytes_under_way() const { return left_; }
};

struct UpdateAccess : RowAccess {
  std::unique_ptr<Event> computed;
  int64_t opened = 0;  // PreUpdates
  std::atomic<int64_t> posted = 0;
  std::deque<UpdateChunk> chunks;

  bool sent() const;  // what was posted
  // The caller's memory is written.  Enqueues the way to host memory on `out`.  Precondition: what
  // was posted is sent.
  absl::Status Post(Stream& compute, Stream& out, const RowIndex& index);
};

struct ReadAccess;

struct ReadChunk : RowChunk {
  std::unique_ptr<Event> uploaded;
  std::atomic<int64_t> arrived = 0;

  // Whether something was done.  Enqueues the way from host memory on `in`.  Null: the caller does
  // before it counts what has arrived as opened.
  absl::StatusOr<bool> Progress(Communicator& communicator, Shard& shard, const ReadAccess& access,
                                Stream* in, const RowIndex& index);
  absl::Status Upload(Stream& in, const ReadAccess& access, const RowIndex& index);
  // uploads: Progress does.
  bool settled(int64_t clock, bool uploads) const {
    return arrived == clock + 1 && !(uploads && uploading_);
  }

 private:
  bool uploading_ = false;
};

struct ReadAccess : RowAccess {
  std::unique_ptr<Event> released_at;
  std::atomic<int64_t> opened = 0, released = 0;  // Reads, PostReads
  std::deque<ReadChunk> chunks;

  bool has_arrived(int64_t clock) const;  // what iteration `clock` reads
};

// Of the messages of a worker's chunk, by its number.  Those of a rank's updates have the way of
// its answers to another's reads.
int TagOf(bool update, int chunk);

}  // namespace gyre
