#include "engine/training/gradient_sync.h"

#include "absl/strings/str_cat.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<GradientSync>> GradientSync::Create(
    Device& device, CommunicationThread& communication, std::vector<Tensor> buckets) {
  std::unique_ptr<GradientSync> sync(new GradientSync(communication));
  sync->staged_ = device.kind() != DeviceKind::kCpu;
  if (sync->staged_) {
    ASSIGN_OR_RETURN(sync->copies_, device.NewStream());
  }
  for (const Tensor& tensor : buckets) {
    Bucket bucket{.device = tensor, .host = tensor};
    ASSIGN_OR_RETURN(bucket.computed, device.NewEvent());
    if (sync->staged_) {
      ASSIGN_OR_RETURN(bucket.ready, device.NewEvent());
      ASSIGN_OR_RETURN(bucket.staging,
                       Buffer::Allocate(device, MemoryKind::kPinnedHost, tensor.bytes()));
      bucket.host.data = bucket.staging.data();
    }
    sync->buckets_.push_back(std::move(bucket));
  }
  return sync;
}

absl::Status GradientSync::Start(int index, Stream& compute) {
  Bucket& bucket = buckets_[index];
  RETURN_IF_ERROR(compute.Record(*bucket.computed));
  if (staged_) {
    RETURN_IF_ERROR(copies_->Wait(*bucket.computed));
    RETURN_IF_ERROR(copies_->Copy(bucket.host.data, bucket.device.data, bucket.device.bytes()));
    RETURN_IF_ERROR(copies_->Record(*bucket.ready));
  }
  bucket.ticket = communication_.Submit(absl::StrCat("gradient bucket ", index), bucket.host,
                                        staged_ ? bucket.ready.get() : bucket.computed.get());
  return absl::OkStatus();
}

absl::StatusOr<ReduceResult> GradientSync::Finish(int index, Stream& compute) {
  Bucket& bucket = buckets_[index];
  ASSIGN_OR_RETURN(const ReduceResult result, communication_.Wait(bucket.ticket));
  if (staged_) {
    RETURN_IF_ERROR(compute.Copy(bucket.device.data, bucket.host.data, bucket.device.bytes()));
  }
  return result;
}

}  // namespace gyre
