// access.h: a worker's end of what it reads and updates in each iteration: rows of one table, in
// memory of the caller's and, packed by owner, in host memory, from where and to where messages go.
//
// What is the caller's is for the thread that owns the compute stream; Progress is for whoever
// drives; between them stand the counts of iterations and the events.
#pragma once

#include <atomic>
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
  Tensor memory = {};             // the caller's
  std::vector<RowPiece> pieces;   // by owner
  std::vector<bool> meets;        // by owner: whether there are messages
  std::vector<Tensor> staged;     // by owner: where the piece is packed for it, and its answer
  int rank = 0;                   // whose piece is staged in the owner's device memory
  Tensor host = {}, device = {};  // all other pieces staged; all rows packed
  bool in_order = false;          // the caller's memory is packed, and of what travels
  int places = 0;                 // else, of packed rows there
  int own = -1;                   // the shard's number of the piece that this rank owns

  // Once rows, table, memory and host are known.
  void FindPieces(std::vector<RowPiece> of_owners, int of_rank, RowIndex& index, Wanted& wanted);
  // Of device memory, that other accesses of its kind may use as well: a stream's work at a time.
  size_t packed_bytes() const { return in_order ? 0 : device.bytes(); }
  // Once they have memory.
  void FindStaged(void* packed);
  int64_t width() const { return host.shape[1]; }
  // Between the caller's memory, or `device`, and where pieces are staged.
  absl::Status CopyPieces(Stream& stream, const Tensor& packed, bool to_staged) const;
  // The owner of a message under way; kNobody: none is.
  int AwaitedOwner() const;

 protected:
  absl::Status Begin(Communicator& communicator, Transfer::Way way, int tag);
  // Whether all have come to their end.
  absl::StatusOr<bool> MessagesDone(Communicator& communicator);
  bool under_way_ = false;
  size_t left_ = 0;  // bytes of messages under way

 private:
  std::vector<Transfer> transfers_;  // by owner
};

struct UpdateAccess : RowAccess {
  std::unique_ptr<Event> computed, copied;
  int64_t opened = 0;  // PreUpdates
  std::atomic<int64_t> posted = 0, sent = 0;

  // The caller's memory is written.  Enqueues the way to host memory on `out`.  Precondition: what
  // was posted is sent.
  absl::Status Post(Stream& compute, Stream& out, const RowIndex& index);
  // Whether something was done.  may_begin: whether what is posted may leave.
  absl::StatusOr<bool> Progress(Communicator& communicator, Shard& shard, bool may_begin);
  // That have left, and owners have not taken.
  size_t bytes_under_way() const { return left_; }
};

struct ReadAccess : RowAccess {
  std::unique_ptr<Event> released_at, uploaded;
  std::atomic<int64_t> opened = 0;  // Reads
  std::atomic<int64_t> arrived = 0, released = 0;

  // Likewise; the way from host memory, on `in`.  Null: the caller enqueues it before it counts
  // what has arrived as opened.
  absl::StatusOr<bool> Progress(Communicator& communicator, Shard& shard, Stream* in,
                                const RowIndex& index);
  absl::Status Upload(Stream& in, const RowIndex& index);
  // uploads: Progress does.
  bool settled(int64_t clock, bool uploads) const {
    return arrived == clock + 1 && !(uploads && uploading_);
  }

 private:
  bool uploading_ = false;
};

// Of the messages of a worker's access, by its number.  Those of a rank's updates have the way of
// its answers to another's reads.
int TagOf(bool update, int access);

}  // namespace gyre
