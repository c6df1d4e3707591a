#include "engine/training/step/input_upload.h"

namespace gyre {
namespace {

size_t Bytes(const Value& value) {
  return static_cast<size_t>(value.shape.elements()) * SizeOf(value.dtype);
}

absl::Status CopyInput(Stream& stream, const Net& net, int input, const void* from) {
  if (input < 0) return absl::OkStatus();
  const Tensor to = net.input(input);
  return stream.Copy(to.data, from, to.bytes());
}

}  // namespace

absl::Status CopyInputs(Stream& stream, const Net& net, const InputMap& inputs,
                        const Batch& batch) {
  const auto check = [&](int input, const Tensor& from) {
    if (input < 0) return;
    const Tensor to = net.input(input);
    GYRE_CHECK(to.bytes() == from.bytes() && to.dtype == from.dtype);
  };
  check(inputs.image, batch.images);
  check(inputs.label, batch.labels);
  RETURN_IF_ERROR(CopyInput(stream, net, inputs.image, batch.images.data));
  return CopyInput(stream, net, inputs.label, batch.labels.data);
}

size_t InputUpload::DeviceBytes(const NetSpec& net) {
  size_t bytes = 0;
  for (int i = 0; i < net.inputs; ++i) bytes += Bytes(net.values[i]);
  return kLanes * bytes;
}

absl::StatusOr<InputUpload> InputUpload::Create(Device& device, const Net& net,
                                                const InputMap& inputs) {
  InputUpload upload(net, inputs);
  if (device.kind() == DeviceKind::kCpu) return upload;
  ASSIGN_OR_RETURN(upload.copies_, device.NewStream());
  const auto allocate = [&](int input) -> absl::StatusOr<Buffer> {
    const size_t bytes = input < 0 ? 0 : Bytes(net.plan().spec.values[input]);
    return Buffer::Allocate(device, MemoryKind::kDevice, bytes);
  };
  for (Lane& lane : upload.lanes_) {
    ASSIGN_OR_RETURN(lane.images, allocate(inputs.image));
    ASSIGN_OR_RETURN(lane.labels, allocate(inputs.label));
    ASSIGN_OR_RETURN(lane.uploaded, device.NewEvent());
  }
  return upload;
}

absl::Status InputUpload::Start(int index, const Batch& batch, Stream& compute) {
  if (copies_ == nullptr) return CopyInputs(compute, *net_, inputs_, batch);
  Lane& lane = lanes_[index];
  const auto copy = [&](const Buffer& to, const Tensor& from) {
    GYRE_CHECK(to.bytes() == 0 || to.bytes() == from.bytes());
    return copies_->Copy(to.data(), from.data, to.bytes());
  };
  RETURN_IF_ERROR(copy(lane.images, batch.images));
  RETURN_IF_ERROR(copy(lane.labels, batch.labels));
  RETURN_IF_ERROR(copies_->Record(*lane.uploaded));
  return compute.Wait(*lane.uploaded);
}

absl::Status InputUpload::Deliver(int lane, Stream& compute) const {
  if (copies_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CopyInput(compute, *net_, inputs_.image, lanes_[lane].images.data()));
  return CopyInput(compute, *net_, inputs_.label, lanes_[lane].labels.data());
}

}  // namespace gyre
