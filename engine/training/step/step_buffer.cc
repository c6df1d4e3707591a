#include "engine/training/step/step_buffer.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_format.h"

namespace gyre {
namespace {

// From `from` to `to` in one piece of memory.
size_t BytesBetween(const void* from, const void* to) {
  return static_cast<size_t>(static_cast<const std::byte*>(to) -
                             static_cast<const std::byte*>(from));
}

// Of a net's block and the metrics behind it.
size_t BlockBytes(const Net& net) {
  const Tensor metrics = net.metrics();
  return metrics ? BytesBetween(net.step_block(), metrics.data) + metrics.bytes()
                 : sizeof(StepBlock);
}

}  // namespace

absl::StatusOr<StepBuffer> StepBuffer::Create(Device& device, const Net& net) {
  StepBuffer buffer;
  buffer.net_ = &net;
  const size_t up = net.pixel_values().bytes() + sizeof(StepBlock);
  ASSIGN_OR_RETURN(buffer.memory_,
                   Buffer::Allocate(device, MemoryKind::kPinnedHost, up + BlockBytes(net)));
  new (buffer.down()) StepBlock();
  return buffer;
}

void StepBuffer::Set(const StepScalars& scalars, const Batch& batch) {
  new (up()) StepBlock{.scalars = scalars, .fault = {}, .gate = {}};
  Tensor values = net_->pixel_values();
  if (values.elements() == 0) return;
  GYRE_CHECK(batch.pixel_values != nullptr);
  values.data = memory_.data();
  VisitReal(values.dtype, [&]<typename T>() {
    std::ranges::transform(*batch.pixel_values, values.as<T>(),
                           [](double value) { return static_cast<T>(value); });
  });
}

absl::Status StepBuffer::Upload(Stream& stream) const {
  const Tensor values = net_->pixel_values();
  return stream.Copy(values.data, memory_.data(), values.bytes() + sizeof(StepBlock));
}

absl::Status StepBuffer::Download(Stream& stream) const {
  const size_t first = offsetof(StepBlock, fault);
  return stream.Copy(&down()->fault, &net_->step_block()->fault, BlockBytes(*net_) - first);
}

GateReport StepBuffer::gate() const { return down()->gate; }

Tensor StepBuffer::metrics() const {
  Tensor metrics = net_->metrics();
  if (metrics) {
    metrics.data =
        reinterpret_cast<std::byte*>(down()) + BytesBetween(net_->step_block(), metrics.data);
  }
  return metrics;
}

absl::Status StepBuffer::CheckFault(const Batch& batch) const {
  const Fault fault = down()->fault;
  if (fault.word == Fault::kNone) return absl::OkStatus();
  const NetNode& node = net_->plan().spec.nodes[fault.layer()];
  // The only fault there is; a second one gets a switch.
  const Shape& scores = net_->plan().spec.values[node.inputs[0]].shape;
  const int64_t classes = scores[scores.rank() - 1];
  return absl::InvalidArgumentError(absl::StrFormat(
      "sample %d (the first is 0) has label %d, but layer \"%s\" has %d classes and takes labels "
      "from 0 to %d; correct the label, or the outputs of the layer that makes the scores",
      batch.samples[fault.index()], batch.labels.as<int32_t>()[fault.index()], node.config->name(),
      classes, classes - 1));
}

}  // namespace gyre
