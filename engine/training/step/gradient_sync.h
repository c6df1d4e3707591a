// gradient_sync.h: the exchange that sums each bucket over ranks while backward continues.
//
// Modes, chosen by Create:
//   direct    The process group sums the bucket where it is.
//   staged    It sums copies in pinned or shared memory, in segments of 4 MiB that overlap.
// With a sharded optimizer (Halves) a reduce-scatter precedes the update and an allgather follows.
// If ranks share one copy of the parameters, a signal replaces the allgather.  RowExchange finds
// the rows of a table that ranks touched, and may sum only these.  A staged bucket may leave the
// device.  Begin frees its memory, and Bring copies the sum elsewhere.
#pragma once

#include <memory>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/device.h"
#include "engine/training/step/bucket_exchange.h"
#include "engine/training/step/row_exchange.h"

namespace gyre {

class GradientSync final : public BucketExchange {
 public:
  enum class Halves : uint8_t {
    kNone,     // whole sums
    kGather,   // Gather sends this rank's shard of the bucket to all others
    kOneCopy,  // ranks share the new values: Gather only signals them
  };
  struct SyncedBucket {
    Tensor gradients;             // device memory
    Tensor summed = {};           // its sum comes here if it leaves; null if it stays
    Tensor received = {};         // Receive brings it here, likewise
    std::string parameters = {};  // names for errors, the same on all ranks
    // If it is a table's gradient, its sum finds the touched rows too.
    const TouchedTable* table = nullptr;
    Net::TableTensors rows = {};
  };
  // `sums` (F64, one a bucket) is device memory.  All memory outlives the result, and so do the
  // first arguments.  With halves, rank r's shard of a bucket is EqualPart(elements, ranks, r).
  // After an error of communication the process must end, as copies or sums may still use the
  // memory.  Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(
      Device& device, Stream& compute, ProcessGroup& communication,
      const std::vector<SyncedBucket>& buckets, Tensor sums, Halves halves, TakeIn take_in);
  ~GradientSync() override;  // waits for sums in progress

  // Starts the bucket's sum, or its first half.  Later work on the compute stream may reuse the
  // memory of a bucket that leaves.
  absl::Status Begin(int bucket) override;
  // With halves, after Finish, starts to send this rank's updated shard to the others.
  // Precondition: the update is on the compute stream.  With kGather, the shard is in the bucket,
  // or in `summed` if that leaves.
  absl::Status Gather(int bucket) override;
  // Takes in those that come earlier, too, lest their updates wait.
  absl::Status Await(int bucket) override;
  absl::Status Poll() override;
  absl::Status Finish(int bucket) override { return TakeResult(bucket).status(); }
  absl::Status Receive(int bucket) override;
  absl::Status Bring(int bucket, const Tensor& to) override;
  absl::Status AddNorms() override;
  absl::Status UploadNorms() override;
  absl::Status TakeSums() override;
  ElementRange updated(int bucket) const override { return buckets_[bucket].own; }

  bool under_way(int bucket) const { return buckets_[bucket].under_way; }
  // Takes arrived segments.  Returns whether TakeResult would not block.  Errors: as TakeResult's.
  absl::StatusOr<bool> Arrived(int bucket);
  // Blocks until the sum of a bucket in progress has arrived.  Buckets may finish in any order.
  // Later work on the compute stream finds the sum, or this rank's shard of it, unless the bucket
  // leaves.  Returns its sum of squares, which is not finite if an element is not.  After Gather,
  // that work finds all ranks' values, and the result is finite.  Errors: those of the reduction.
  absl::StatusOr<double> TakeResult(int bucket);

 private:
  struct Segment {
    // For errors.  With halves, also all that must be equal on all ranks in each half.
    std::string label, gather_label = {};
    Tensor device, summed;         // the bucket's memory, and the memory that is summed
    Tensor back;                   // takes the sum: `device`, unless the bucket leaves
    std::unique_ptr<Event> ready;  // staged: the copy to host is complete
    ProcessGroup::Ticket ticket = 0;
  };
  struct Bucket {
    bool leaves = false;  // then only the compute stream copies it
    Tensor received;
    std::vector<Segment> segments;
    std::unique_ptr<Event> computed;  // its gradients are complete
    std::unique_ptr<Event> arrived;   // staged: the sums are on the device
    bool under_way = false;
    size_t taken = 0;                   // segments whose sums have arrived
    double squares = 0;                 // of these segments
    std::unique_ptr<RowExchange> rows;  // for a table only
    ElementRange own;                   // what this rank updates: with halves, its shard
    // For halves only, which have one segment.
    bool gathering = false;
    double nothing = 0;  // summed over ranks as kOneCopy's signal
  };

  GradientSync(Stream& compute, ProcessGroup& communication, Tensor sums, Halves halves,
               TakeIn take_in)
      : compute_(compute),
        communication_(communication),
        halves_(halves),
        take_in_(std::move(take_in)),
        sums_(sums) {}
  bool in_halves() const { return halves_ != Halves::kNone; }
  absl::Status AddBucket(Device& device, const SyncedBucket& of, std::byte* staging);
  absl::Status Submit(Bucket& bucket, int urgency);
  // The exchange of a table's rows that accompanies the operation in progress, or null.
  static RowExchange* Rows(const Bucket& bucket) {
    return bucket.gathering ? nullptr : bucket.rows.get();
  }
  bool staged() const { return out_ != nullptr; }
  // What an operation leaves of a segment: this rank's shard, with halves before Gather.
  ElementRange LeftOf(const Bucket& bucket, const Segment& segment) const {
    return in_halves() && !bucket.gathering ? bucket.own
                                            : ElementRange{0, segment.summed.elements()};
  }
  absl::Status TakeSegment(Bucket& bucket);

  Stream& compute_;
  ProcessGroup& communication_;
  const Halves halves_;
  const TakeIn take_in_;
  std::unique_ptr<Stream> out_, back_;  // staged: device to host, host to device
  Buffer staging_;                      // pinned; empty if ranks share memory for copies
  const Tensor sums_;
  Buffer host_sums_;                   // pinned
  std::vector<double> sums_of_parts_;  // halves: by rank, then bucket
  std::vector<Bucket> buckets_;
};

}  // namespace gyre
