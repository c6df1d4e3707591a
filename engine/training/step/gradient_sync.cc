#include "engine/training/step/gradient_sync.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/training/net/plan/gradient_order.h"

namespace gyre {
namespace {

// A staged bucket's segment.  Its copy takes 160 us over PCIe 4 x16, twenty times the start of a
// copy.  AlexNet's largest gradient has 36 segments.
constexpr size_t kSegmentBytes = 4 << 20;

absl::Status Copy(Stream& stream, const Tensor& from, const Tensor& to, ElementRange range) {
  const Tensor part = Slice(to, range.begin, range.count());
  return stream.Copy(part.data, Slice(from, range.begin, range.count()).data, part.bytes());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientSync>> GradientSync::Create(
    Device& device, Stream& compute, ProcessGroup& communication,
    const std::vector<SyncedBucket>& buckets, Tensor sums, Halves halves, TakeIn take_in) {
  std::unique_ptr<GradientSync> sync(
      new GradientSync(compute, communication, sums, halves, std::move(take_in)));
  size_t bytes = 0;
  for (const SyncedBucket& bucket : buckets) bytes += bucket.gradients.bytes();
  const auto allocate = [&](size_t size) {
    return Buffer::Allocate(device, MemoryKind::kPinnedHost, size);
  };
  ASSIGN_OR_RETURN(sync->host_sums_, allocate(sums.bytes()));
  std::memset(sync->host_sums_.data(), 0, sums.bytes());  // of buckets that do not train
  const bool some_leave = std::ranges::any_of(
      buckets, [](const SyncedBucket& bucket) { return bucket.summed.data != nullptr; });
  const bool direct =
      sync->in_halves() ? device.kind() == DeviceKind::kCpu : communication.sums_device_memory();
  GYRE_CHECK(!some_leave || !direct);
  if (sync->in_halves()) sync->sums_of_parts_.resize(buckets.size() * communication.size());
  std::byte* staging = nullptr;
  if (!direct) {
    ASSIGN_OR_RETURN(sync->out_, device.NewStream());
    ASSIGN_OR_RETURN(sync->back_, device.NewStream());
    // Without the host's help a GPU copies only to pinned memory.
    if (device.kind() != DeviceKind::kCuda) {
      ASSIGN_OR_RETURN(staging, communication.Share(bytes));
    }
    if (staging == nullptr) {
      ASSIGN_OR_RETURN(sync->staging_, allocate(bytes));
      staging = sync->staging_.data();
    }
  }
  for (const SyncedBucket& bucket : buckets) {
    RETURN_IF_ERROR(sync->AddBucket(device, bucket, staging));
    if (staging != nullptr) staging += bucket.gradients.bytes();
  }
  return sync;
}

absl::Status GradientSync::AddBucket(Device& device, const SyncedBucket& of, std::byte* staging) {
  const Tensor& tensor = of.gradients;
  const size_t number = buckets_.size();
  Bucket& bucket = buckets_.emplace_back();
  bucket.leaves = of.summed.data != nullptr;
  bucket.received = of.received;
  bucket.own = in_halves()
                   ? EqualPart(tensor.elements(), communication_.size(), communication_.rank())
                   : ElementRange{0, tensor.elements()};
  ASSIGN_OR_RETURN(bucket.computed, device.NewEvent());
  if (staged()) {
    ASSIGN_OR_RETURN(bucket.arrived, device.NewEvent());
  }
  if (of.table != nullptr) {
    ASSIGN_OR_RETURN(bucket.rows, RowExchange::Create(device, communication_, *of.table, of.rows,
                                                      tensor, of.parameters));
    if (bucket.rows->sends_values()) return absl::OkStatus();
  }
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  const int64_t longest = !staged() || in_halves() ? std::max<int64_t>(tensor.elements(), 1)
                                                   : static_cast<int64_t>(kSegmentBytes) / size;
  const std::string names = absl::StrCat(" (", of.parameters, ")");
  for (int64_t first = 0; first < tensor.elements() || first == 0; first += longest) {
    const int64_t count = std::min(longest, tensor.elements() - first);
    const size_t part = bucket.segments.size();
    Segment& segment = bucket.segments.emplace_back();
    segment.label =
        in_halves() ? absl::StrCat("reduce-scatter of gradient bucket ", number, ", ", count, names)
                    : absl::StrCat("gradient bucket ", number, " part ", part, names);
    segment.gather_label = absl::StrCat(halves_ == Halves::kOneCopy ? "update" : "allgather",
                                        " of gradient bucket ", number, ", ", count, names);
    segment.device = Slice(tensor, first, count);
    segment.back = bucket.leaves ? Slice(of.summed, first, count) : segment.device;
    segment.summed = segment.device;
    if (!staged()) continue;
    segment.summed.data = staging + first * size;
    ASSIGN_OR_RETURN(segment.ready, device.NewEvent());
  }
  return absl::OkStatus();
}

absl::Status GradientSync::Begin(int index) {
  Bucket& bucket = buckets_[index];
  bucket.gathering = false;
  // The next forward needs the last bucket first, but updates of shards need the first.
  return Submit(bucket, /*urgency=*/in_halves() ? 0 : index);
}

absl::Status GradientSync::Gather(int index) {
  GYRE_CHECK(in_halves() && !buckets_[index].under_way);
  buckets_[index].gathering = true;
  return Submit(buckets_[index], index - static_cast<int>(buckets_.size()));  // after what sums
}

absl::Status GradientSync::Submit(Bucket& bucket, int urgency) {
  if (Rows(bucket)) RETURN_IF_ERROR(Rows(bucket)->Start(compute_, urgency));
  RETURN_IF_ERROR(compute_.Record(*bucket.computed));
  Stream& out = bucket.leaves || !staged() ? compute_ : *out_;
  if (&out != &compute_) RETURN_IF_ERROR(out.Wait(*bucket.computed));
  for (Segment& segment : bucket.segments) {
    const Event* ready = bucket.computed.get();
    if (staged()) {
      RETURN_IF_ERROR(bucket.gathering ? Copy(out, segment.back, segment.summed, bucket.own)
                                       : Copy(out, segment.device, segment.summed,
                                              {0, segment.device.elements()}));
      RETURN_IF_ERROR(out.Record(*segment.ready));
      ready = segment.ready.get();
    }
    if (bucket.gathering && halves_ == Halves::kOneCopy) {
      segment.ticket =
          communication_.Submit(segment.gather_label, Operation::kAllreduce, /*root=*/0,
                                {&bucket.nothing, Shape({1}), DType::kF64}, ready, urgency);
    } else if (in_halves()) {
      segment.ticket = communication_.Submit(
          bucket.gathering ? segment.gather_label : segment.label,
          bucket.gathering ? Operation::kAllgather : Operation::kReduceScatter,
          /*root=*/0, segment.summed, ready, urgency);
    } else {
      segment.ticket =
          communication_.Submit(segment.label, segment.summed, ready,
                                staged() ? MemoryKind::kPinnedHost : MemoryKind::kDevice, urgency);
    }
  }
  bucket.under_way = true;
  bucket.taken = 0;
  bucket.squares = 0;
  return absl::OkStatus();
}

GradientSync::~GradientSync() {
  // After an error every ticket has it, so this ends.
  for (const Bucket& bucket : buckets_) {
    if (!bucket.under_way) continue;
    if (Rows(bucket) && !Rows(bucket)->Await().ok()) return;
    for (size_t i = bucket.taken; i < bucket.segments.size(); ++i) {
      if (!communication_.Wait(bucket.segments[i].ticket).ok()) return;
    }
  }
}

absl::Status GradientSync::Await(int bucket) {
  for (int64_t seen = -1; under_way(bucket);) {
    ASSIGN_OR_RETURN(seen, communication_.WaitForMore(seen));
    RETURN_IF_ERROR(Poll());
  }
  return absl::OkStatus();
}

absl::Status GradientSync::Poll() {
  for (int b = static_cast<int>(buckets_.size()) - 1; b >= 0; --b) {
    if (!under_way(b)) continue;
    ASSIGN_OR_RETURN(const bool arrived, Arrived(b));
    if (arrived) RETURN_IF_ERROR(Receive(b));
  }
  return absl::OkStatus();
}

absl::Status GradientSync::TakeSums() {
  for (int b = static_cast<int>(buckets_.size()) - 1; b >= 0; --b) RETURN_IF_ERROR(Await(b));
  return absl::OkStatus();
}

absl::Status GradientSync::Receive(int bucket) {
  ASSIGN_OR_RETURN(const double squares, TakeResult(bucket));
  RETURN_IF_ERROR(Bring(bucket, buckets_[bucket].received));
  return take_in_(bucket, squares);
}

absl::StatusOr<bool> GradientSync::Arrived(int index) {
  Bucket& bucket = buckets_[index];
  while (bucket.taken < bucket.segments.size()) {
    ASSIGN_OR_RETURN(const bool done, communication_.Done(bucket.segments[bucket.taken].ticket));
    if (!done) return false;
    RETURN_IF_ERROR(TakeSegment(bucket));
  }
  if (Rows(bucket)) return Rows(bucket)->Arrived();
  return true;
}

// Receives the next segment.  Blocks.
absl::Status GradientSync::TakeSegment(Bucket& bucket) {
  const Segment& segment = bucket.segments[bucket.taken++];
  ASSIGN_OR_RETURN(const double squares, communication_.Wait(segment.ticket));
  bucket.squares += squares;  // not finite if an element is not
  if (!staged() || bucket.leaves) return absl::OkStatus();
  return Copy(*back_, segment.summed, segment.device, LeftOf(bucket, segment));
}

absl::StatusOr<double> GradientSync::TakeResult(int index) {
  Bucket& bucket = buckets_[index];
  GYRE_CHECK(bucket.under_way);
  bucket.under_way = false;
  while (bucket.taken < bucket.segments.size()) RETURN_IF_ERROR(TakeSegment(bucket));
  if (Rows(bucket)) {
    ASSIGN_OR_RETURN(const double of_rows, Rows(bucket)->Finish(compute_));
    bucket.squares += of_rows;
  }
  const double sum = bucket.squares;
  if (in_halves()) {
    if (!bucket.gathering) sums_of_parts_[communication_.rank() * buckets_.size() + index] = sum;
  } else {
    // The last step's upload is over, as this bucket's gradients came after it.
    reinterpret_cast<double*>(host_sums_.data())[index] = sum;
  }
  if (staged() && !bucket.leaves) {
    RETURN_IF_ERROR(back_->Record(*bucket.arrived));
    RETURN_IF_ERROR(compute_.Wait(*bucket.arrived));
  }
  return sum;
}

absl::Status GradientSync::Bring(int index, const Tensor& to) {
  const Bucket& bucket = buckets_[index];
  if (!bucket.leaves) return absl::OkStatus();
  int64_t first = 0;
  for (const Segment& segment : bucket.segments) {
    const int64_t count = segment.summed.elements();
    RETURN_IF_ERROR(
        Copy(compute_, segment.summed, Slice(to, first, count), LeftOf(bucket, segment)));
    first += count;
  }
  return absl::OkStatus();
}

absl::Status GradientSync::AddNorms() {
  const size_t own = communication_.rank() * buckets_.size();
  for (size_t i = 0; i < sums_of_parts_.size(); ++i) {
    if (i < own || i >= own + buckets_.size()) sums_of_parts_[i] = 0;
  }
  RETURN_IF_ERROR(
      communication_.Sum("sums of squares of parts of gradient buckets", sums_of_parts_));
  // Added in the order of ranks, as whole sums are.  The last step's upload is over, as above.
  for (size_t b = 0; b < buckets_.size(); ++b) {
    double sum = 0;
    for (size_t i = b; i < sums_of_parts_.size(); i += buckets_.size()) sum += sums_of_parts_[i];
    reinterpret_cast<double*>(host_sums_.data())[b] = sum;
  }
  return absl::OkStatus();
}

absl::Status GradientSync::UploadNorms() {
  return compute_.Copy(sums_.data, host_sums_.data(), sums_.bytes());
}

}  // namespace gyre
