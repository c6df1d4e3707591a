#include "engine/training/step/gradient_sync.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/training/step/gradient_clipping.h"

namespace gyre {
namespace {

// Of a staged bucket.  A copy of it takes 160 us over PCIe 4 x16, twenty times what starting one
// does; AlexNet's largest gradient has 36 of them.
constexpr size_t kSegmentBytes = 4 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<GradientSync>> GradientSync::Create(Device& device,
                                                                   ProcessGroup& communication,
                                                                   std::vector<Tensor> buckets,
                                                                   Tensor sums, void* scratch) {
  std::unique_ptr<GradientSync> sync(new GradientSync(communication, sums, scratch));
  size_t bytes = 0;
  for (const Tensor& bucket : buckets) bytes += bucket.bytes();
  const auto allocate = [&](size_t size) {
    return Buffer::Allocate(device, MemoryKind::kPinnedHost, size);
  };
  ASSIGN_OR_RETURN(sync->host_sums_, allocate(sums.bytes()));
  if (communication.size() > 1) {
    sync->how_ = communication.sums_device_memory() ? How::kDirect : How::kStaged;
  }
  std::byte* staged = nullptr;
  if (sync->how_ == How::kStaged) {
    ASSIGN_OR_RETURN(sync->out_, device.NewStream());
    ASSIGN_OR_RETURN(sync->back_, device.NewStream());
    // A GPU copies to pinned memory alone without the host's help.
    if (device.kind() != DeviceKind::kCuda) {
      ASSIGN_OR_RETURN(staged, communication.Share(bytes));
    }
    if (staged == nullptr) {
      ASSIGN_OR_RETURN(sync->staging_, allocate(bytes));
      staged = sync->staging_.data();
    }
  }
  for (const Tensor& bucket : buckets) {
    RETURN_IF_ERROR(sync->AddBucket(device, bucket, staged));
    if (staged != nullptr) staged += bucket.bytes();
  }
  return sync;
}

absl::Status GradientSync::AddBucket(Device& device, const Tensor& tensor, std::byte* staged) {
  Bucket& bucket = buckets_.emplace_back();
  bucket.whole = tensor;
  if (how_ == How::kAlone) return absl::OkStatus();
  ASSIGN_OR_RETURN(bucket.computed, device.NewEvent());
  if (how_ == How::kStaged) {
    ASSIGN_OR_RETURN(bucket.arrived, device.NewEvent());
  }
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  const int64_t longest = how_ == How::kDirect ? std::max<int64_t>(tensor.elements(), 1)
                                               : static_cast<int64_t>(kSegmentBytes) / size;
  for (int64_t first = 0; first < tensor.elements() || first == 0; first += longest) {
    const int64_t count = std::min(longest, tensor.elements() - first);
    const size_t part = bucket.segments.size();
    Segment& segment = bucket.segments.emplace_back();
    segment.label = absl::StrCat("gradient bucket ", buckets_.size() - 1, " part ", part);
    segment.device = {static_cast<std::byte*>(tensor.data) + first * size, Shape({count}),
                      tensor.dtype};
    segment.summed = segment.device;
    if (how_ != How::kStaged) continue;
    segment.summed.data = staged + first * size;
    ASSIGN_OR_RETURN(segment.ready, device.NewEvent());
  }
  return absl::OkStatus();
}

absl::Status GradientSync::Start(int index, Stream& compute) {
  Bucket& bucket = buckets_[index];
  if (how_ == How::kAlone) {
    return SumSquares(compute, bucket.whole, scratch_, sums_.as<double>() + index);
  }
  RETURN_IF_ERROR(compute.Record(*bucket.computed));
  if (how_ == How::kStaged) RETURN_IF_ERROR(out_->Wait(*bucket.computed));
  for (Segment& segment : bucket.segments) {
    const Event* ready = bucket.computed.get();
    if (how_ == How::kStaged) {
      RETURN_IF_ERROR(out_->Copy(segment.summed.data, segment.device.data, segment.device.bytes()));
      RETURN_IF_ERROR(out_->Record(*segment.ready));
      ready = segment.ready.get();
    }
    segment.ticket =
        communication_.Submit(segment.label, segment.summed, ready,
                              how_ == How::kStaged ? MemoryKind::kPinnedHost : MemoryKind::kDevice,
                              /*urgency=*/index);  // the next forward needs the last bucket first
  }
  bucket.under_way = true;
  return absl::OkStatus();
}

GradientSync::~GradientSync() {
  // An error is every ticket's from then on, so this ends.
  for (const Bucket& bucket : buckets_) {
    if (!bucket.under_way) continue;
    for (const Segment& segment : bucket.segments) {
      if (!communication_.Wait(segment.ticket).ok()) return;
    }
  }
}

absl::StatusOr<bool> GradientSync::Arrived(int index) {
  for (const Segment& segment : buckets_[index].segments) {
    ASSIGN_OR_RETURN(const bool done, communication_.Done(segment.ticket));
    if (!done) return false;
  }
  return true;
}

absl::StatusOr<double> GradientSync::Finish(int index, Stream& compute) {
  Bucket& bucket = buckets_[index];
  GYRE_CHECK(bucket.under_way);
  bucket.under_way = false;
  double sum = 0;
  for (Segment& segment : bucket.segments) {
    ASSIGN_OR_RETURN(const double squares, communication_.Wait(segment.ticket));
    sum += squares;  // not finite if an element is not
    if (how_ != How::kStaged) continue;
    RETURN_IF_ERROR(back_->Copy(segment.device.data, segment.summed.data, segment.summed.bytes()));
  }
  // The upload of the step before is over: this bucket's gradients came after it.
  reinterpret_cast<double*>(host_sums_.data())[index] = sum;
  if (how_ == How::kStaged) {
    RETURN_IF_ERROR(back_->Record(*bucket.arrived));
    RETURN_IF_ERROR(compute.Wait(*bucket.arrived));
  }
  return sum;
}

absl::Status GradientSync::UploadSums(Stream& compute) const {
  return compute.Copy(sums_.data, host_sums_.data(), sums_.bytes());
}

}  // namespace gyre
