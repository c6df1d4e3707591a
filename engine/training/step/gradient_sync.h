// gradient_sync.h: sums each bucket over ranks while backward continues.  Used by the compute
// stream's thread.
//
// Modes, chosen by Create:
//   direct    The process group sums the bucket where it is.
//   staged    It sums copies in pinned or shared memory, in segments of 4 MiB that overlap.
// With a sharded optimizer (Halves) a reduce-scatter precedes the update and an allgather follows.
// If ranks share one copy of the parameters, a signal replaces the allgather.  RowExchange finds
// the rows of a table that ranks touched, and may sum only these.  A staged bucket may leave the
// device.  Start frees its memory, and Bring copies the sum elsewhere.
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
    kGather,   // StartGather sends this rank's shard of the bucket to all others
    kOneCopy,  // ranks share the new values: StartGather only signals them
  };
  struct SyncedBucket {
    Tensor gradients;             // device memory
    Tensor summed = {};           // its sum comes here if it leaves; null if it stays
    std::string parameters = {};  // names for errors, the same on all ranks
    // If it is a table's gradient, its sum finds the touched rows too.
    const TouchedTable* table = nullptr;
    Net::TableTensors rows = {};
  };
  // `sums` (F64, one a bucket) is device memory.  All memory outlives the result.  With halves,
  // rank r's shard of a bucket is EqualPart(elements, ranks, r).  After an error of communication
  // the process must end, as copies or sums may still use the memory.  Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(
      Device& device, ProcessGroup& communication, const std::vector<SyncedBucket>& buckets,
      Tensor sums, Halves halves = Halves::kNone);
  ~GradientSync();  // waits for sums in progress

  // Starts the bucket's sum, or its first half.  Precondition: its gradients are on `compute`.
  // Later work on `compute` may reuse the memory of a bucket that leaves.
  absl::Status Start(int bucket, Stream& compute);

  // With halves, after Finish, starts to send this rank's updated shard to the others.
  // Precondition: the update is on `compute`.  With kGather, the shard is in the bucket, or in
  // `summed` if that leaves.
  absl::Status StartGather(int bucket, Stream& compute);
  bool under_way(int bucket) const { return buckets_[bucket].under_way; }
  // Receives arrived segments.  Returns whether Finish would not block.  Errors: as Finish's.
  absl::StatusOr<bool> Arrived(int bucket);
  // Blocks until the sum of a bucket in progress has arrived.  Buckets may finish in any order.
  // Later work on `compute` finds the sum, or this rank's shard of it, unless the bucket leaves.
  // Returns its sum of squares, which is not finite if an element is not.  After StartGather,
  // `compute` finds all ranks' values, and the result is finite.  Errors: those of the reduction.
  absl::StatusOr<double> Finish(int bucket, Stream& compute);
  // Enqueues the copy of Finish's result to `to`, the same each time, for a bucket that leaves.
  // Does nothing for others, whose result is in their place.  `gathered` tells whether StartGather
  // preceded that Finish.
  absl::Status Bring(int bucket, bool gathered, const Tensor& to, Stream& compute) const;
  // With halves, adds the ranks' sums of squares for UploadSums.  Blocks.  Errors: those of ranks.
  absl::Status AddSumsOfShards();
  // Enqueues the upload of all buckets' sums of squares, the same each time.
  absl::Status UploadSums(Stream& compute) const;

  int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  enum class How : uint8_t {
    kDirect,  // the process group sums the bucket where it is
    kStaged,  // it sums copies
  };
  struct Segment {
    // For errors.  With halves, also all that must be equal on all ranks in each half.
    std::string label, gather_label = {};
    Tensor device, summed;         // the bucket's memory, and the memory that is summed
    Tensor back;                   // receives the sum: `device`, unless the bucket leaves
    std::unique_ptr<Event> ready;  // staged: the copy to host is complete
    ProcessGroup::Ticket ticket = 0;
  };
  struct Bucket {
    bool leaves = false;  // then only `compute` copies it
    std::vector<Segment> segments;
    std::unique_ptr<Event> computed;  // its gradients are complete
    std::unique_ptr<Event> arrived;   // staged: the sums are on the device
    bool under_way = false;
    size_t taken = 0;                   // segments whose sums have arrived
    double squares = 0;                 // of these segments
    std::unique_ptr<RowExchange> rows;  // for a table only
    // For halves only, which have one segment.
    ElementRange own;  // this rank's shard
    bool gathering = false;
    double nothing = 0;  // summed over ranks as kOneCopy's signal
  };

  GradientSync(ProcessGroup& communication, Tensor sums, Halves halves)
      : communication_(communication), halves_(halves), sums_(sums) {}
  bool in_halves() const { return halves_ != Halves::kNone; }
  absl::Status AddBucket(Device& device, const SyncedBucket& of, std::byte* staged);
  absl::Status Begin(Bucket& bucket, int urgency, Stream& compute);
  // The exchange of a table's rows that accompanies the operation in progress, or null.
  static RowExchange* Rows(const Bucket& bucket) {
    return bucket.gathering ? nullptr : bucket.rows.get();
  }
  absl::Status TakeSegment(Bucket& bucket);

  ProcessGroup& communication_;
  const Halves halves_;
  How how_ = How::kDirect;
  std::unique_ptr<Stream> out_, back_;  // staged: device to host, host to device
  Buffer staging_;                      // pinned; empty if ranks share memory for copies
  const Tensor sums_;
  Buffer host_sums_;                   // pinned
  std::vector<double> sums_of_parts_;  // halves: by rank, then bucket
  std::vector<Bucket> buckets_;
};

}  // namespace gyre
