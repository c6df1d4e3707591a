#include "engine/training/step/input_upload.h"

#include "engine/training/net_kernels.h"

namespace gyre {
namespace {

// From a tensor of a batch to the input that it is for; -1: there is none.
absl::Status CopyInput(Stream& stream, const Net& net, int input, const Tensor& from) {
  if (input < 0) return absl::OkStatus();
  const Tensor to = net.input(input);
  GYRE_CHECK(to.bytes() == from.bytes() && to.dtype == from.dtype);
  return stream.Copy(to.data, from.data, to.bytes());
}

}  // namespace

absl::StatusOr<InputUpload> InputUpload::Create(Device& device, const Net& net) {
  InputUpload upload(net);
  if (net.plan().trace.ahead.empty()) return upload;
  ASSIGN_OR_RETURN(upload.copies_, device.NewStream());
  for (size_t lane = 0; lane < net.plan().trace.ahead.size(); ++lane) {
    ASSIGN_OR_RETURN(upload.uploaded_.emplace_back(), device.NewEvent());
  }
  return upload;
}

absl::Status InputUpload::Start(int lane, const Batch& batch, Stream& compute) {
  if (copies_ == nullptr) {
    RETURN_IF_ERROR(CopyInput(compute, *net_, net_->plan().feed.image, batch.images));
    return CopyInput(compute, *net_, net_->plan().feed.label, batch.labels);
  }
  const Tensor to = net_->whole_ahead(lane), images = net_->images_ahead(lane),
               labels = net_->labels_ahead(lane);
  const auto check = [&](const Tensor& at, const Tensor& from, const void* first) {
    const auto offset = [](const void* begin, const void* end) {
      return static_cast<const std::byte*>(end) - static_cast<const std::byte*>(begin);
    };
    GYRE_CHECK(!at || (at.bytes() == from.bytes() && at.dtype == from.dtype &&
                       offset(to.data, at.data) == offset(first, from.data)));
  };
  const void* first = images ? batch.images.data : batch.labels.data;
  check(images, batch.images, first);
  check(labels, batch.labels, first);
  RETURN_IF_ERROR(copies_->Copy(to.data, first, to.bytes()));
  RETURN_IF_ERROR(copies_->Record(*uploaded_[lane]));
  return compute.Wait(*uploaded_[lane]);
}

absl::Status InputUpload::Deliver(int lane, Stream& compute) const {
  if (copies_ == nullptr) return absl::OkStatus();
  if (const Tensor images = net_->images_ahead(lane)) {
    RETURN_IF_ERROR(
        LookUp(compute, images, net_->pixel_values(), net_->input(net_->plan().feed.image)));
  }
  return CopyInput(compute, *net_, net_->plan().feed.label, net_->labels_ahead(lane));
}

}  // namespace gyre
