// gradient_sync.h: each bucket's sum over ranks, while backward goes on.
//
// One rank alone measures its gradients on the stream that made them.  Several ranks sum them on
// the process group: in device memory where it can, else through copies in pinned memory, or in
// memory that the ranks share, segment by segment, so that a long bucket's way out, its sum and its
// way back overlap.  Or, where ranks share out the optimizer, in two halves around its update: each
// rank gets the sum of its part of a bucket, and later gives what it has made of it to all others,
// or tells that it is there, where they have one copy.  Of a table's gradient it tells what rows
// all ranks have touched, and may sum these alone.  A bucket may leave the device meanwhile: from
// Start on its place is another's, and its sum comes back to one of its own when that is asked for.
// Used by the thread that owns the compute stream.
#pragma once

#include <memory>
#include <vector>

#include "distributed/process_group.h"
#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/device.h"
#include "engine/training/step/row_exchange.h"

namespace gyre {

class GradientSync {
 public:
  enum class Halves : uint8_t {
    kNone,     // whole sums
    kGather,   // StartGather gives this rank's part of the bucket to all others
    kOneCopy,  // what was made of it they have: StartGather tells that it is there
  };
  // buckets, sums (F64, one a bucket) and scratch (kSumSquaresScratchBytes): device memory that
  // outlives the result, as device and communication do.  An error of communication may leave a
  // copy or a sum running in that memory: then the process must end.  With halves, of several
  // ranks, rank r's part of a bucket is EqualPart(elements, ranks, r).  summed: by bucket, where
  // the sum of one that leaves comes to, likewise; null, or none at all: it stays where it is.
  // Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(
      Device& device, ProcessGroup& communication, std::vector<Tensor> buckets, Tensor sums,
      void* scratch, Halves halves = Halves::kNone, std::vector<Tensor> summed = {});

  // The bucket is of this table's gradient, whose touched rows are found with the sum.  Both
  // outlive the object.  Errors: those of allocation.
  absl::Status FindRows(int bucket, Device& device, const TouchedTable& table,
                        const Net::TableTensors& memory);

  ~GradientSync();  // waits for sums under way

  // Says in errors whose gradients the bucket's are: the same on all ranks.
  void Name(int bucket, const std::string& parameters);

  // True of one rank: Start only enqueues work on the compute stream, the same in each step, and
  // none of what follows it is called.
  bool on_stream() const { return how_ == How::kAlone; }

  // The gradients of `bucket` are on `compute`: starts its sum, or the first half of it.  What
  // comes after on `compute` may use the place of one that leaves.
  absl::Status Start(int bucket, Stream& compute);

  // With halves, after Finish: what this rank makes of its part of the bucket is on `compute`, and,
  // with kGather, lies in it, or where its sum came to.  Starts giving it to the others.
  absl::Status StartGather(int bucket, Stream& compute);
  // Whether the bucket was started and not finished.
  bool under_way(int bucket) const { return buckets_[bucket].under_way; }
  // Takes what has come of a bucket under way; whether that is all, and Finish would return at
  // once.  Errors: as Finish's.
  absl::StatusOr<bool> Arrived(int bucket);
  // Of a bucket under way, in any order: what comes after on `compute` finds it, or this rank's
  // part of it, summed over all ranks.  Blocks until the ranks' sum is there.  Returns the sum of
  // squares of the summed gradients that it finds, not finite if one of them is not.  After
  // StartGather it finds what all ranks have made, and returns a finite number.  Errors: those of
  // the reduction.
  absl::StatusOr<double> Finish(int bucket, Stream& compute);
  // Of a bucket that leaves, after Finish, which does not do it: what comes after on `compute`
  // finds in `summed` what Finish has found.  gathered: after StartGather.  Enqueues the same each
  // time.
  absl::Status Bring(int bucket, bool gathered, Stream& compute) const;
  // With halves: what UploadSums needs of the other ranks.  Blocks.  Errors: those of ranks.
  absl::Status AddSumsOfParts();
  // Enqueues, the same each time, the upload of what Finish has returned for all buckets.
  absl::Status UploadSums(Stream& compute) const;

  // F64, of device memory: one rank's since Start, several ranks' since UploadSums.
  const double* sums() const { return sums_.as<double>(); }
  int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  enum class How : uint8_t {
    kAlone,   // nothing to sum
    kDirect,  // the process group sums the bucket where it is
    kStaged,  // it sums copies
  };
  struct Segment {
    // In errors; of halves, all that is the same on all ranks of the first, and of the second.
    std::string label, gather_label = {};
    Tensor device, summed;         // where it is, and what the process group sums
    Tensor back;                   // where the sum comes to: `device`, unless it leaves
    std::unique_ptr<Event> ready;  // staged: the copy has come out
    ProcessGroup::Ticket ticket = 0;
  };
  struct Bucket {
    Tensor whole;
    bool leaves = false;  // then `compute` copies, and none else uses its places
    std::vector<Segment> segments;
    std::unique_ptr<Event> computed;  // its gradients are all there
    std::unique_ptr<Event> arrived;   // staged: the sums have come back
    bool under_way = false;
    size_t taken = 0;    // segments whose sums have come, and are on their way back
    double squares = 0;  // of those
    // Of a table, of one rank and of several:
    Net::TableTensors table = {};
    std::unique_ptr<RowExchange> rows;
    // Of halves, which are of one segment:
    ElementRange own;  // this rank's part
    bool gathering = false;
    double nothing = 0;  // its sum over ranks tells that all of them have come
  };

  GradientSync(ProcessGroup& communication, Tensor sums, void* scratch, Halves halves)
      : communication_(communication), halves_(halves), sums_(sums), scratch_(scratch) {}
  bool in_halves() const { return halves_ != Halves::kNone; }
  // staged: where its copies come.
  absl::Status AddBucket(Device& device, const Tensor& tensor, const Tensor& summed,
                         std::byte* staged);
  absl::Status Begin(Bucket& bucket, int urgency, Stream& compute);
  // The exchange of a table's rows that goes with what is under way; null: none.
  static RowExchange* Rows(const Bucket& bucket) {
    return bucket.gathering ? nullptr : bucket.rows.get();
  }
  absl::Status TakeSegment(Bucket& bucket);

  ProcessGroup& communication_;
  const Halves halves_;
  How how_ = How::kAlone;
  std::unique_ptr<Stream> out_, back_;  // staged: device to host, host to device
  Buffer staging_;                      // pinned; empty if ranks share the copies' memory
  const Tensor sums_;
  void* const scratch_;
  Buffer host_sums_;                   // pinned
  std::vector<double> sums_of_parts_;  // of halves: by rank, then bucket
  std::vector<Bucket> buckets_;
};

}  // namespace gyre
