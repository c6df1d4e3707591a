#include "engine/training/step/input_upload.h"

#include "engine/training/net/infer/net_kernels.h"

namespace gyre {
namespace {

absl::Status CopyInput(Stream& stream, const Tensor& from, const Tensor& to) {
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
    for (int i = 0; i < inputs_; ++i) {
      RETURN_IF_ERROR(CopyInput(compute, batch.arrays[i], net_->input(i)));
    }
    return absl::OkStatus();
  }
  if (inputs_ == 0) return absl::OkStatus();
  const Tensor to = net_->whole_ahead(lane);
  const void* first = batch.arrays[0].data;
  for (int i = 0; i < inputs_; ++i) {
    const Tensor &from = batch.arrays[i], at = net_->ahead(lane, i);
    const auto offset = [](const void* begin, const void* end) {
      return static_cast<const std::byte*>(end) - static_cast<const std::byte*>(begin);
    };
    GYRE_CHECK(at.bytes() == from.bytes() && at.dtype == from.dtype &&
               offset(to.data, at.data) == offset(first, from.data));
  }
  RETURN_IF_ERROR(copies_->Copy(to.data, first, to.bytes()));
  RETURN_IF_ERROR(copies_->Record(*uploaded_[lane]));
  return compute.Wait(*uploaded_[lane]);
}

absl::Status InputUpload::Deliver(int lane, Stream& compute, const Net& net) const {
  if (copies_ == nullptr) return absl::OkStatus();
  for (int i = 0; i < inputs_; ++i) {
    const Tensor from = net_->ahead(lane, i), to = net.input(i);
    const Tensor pixel_values = net_->pixel_values(i);
    RETURN_IF_ERROR(pixel_values.elements() > 0 ? LookUp(compute, from, pixel_values, to)
                                                : CopyInput(compute, from, to));
  }
  return absl::OkStatus();
}

}  // namespace gyre
