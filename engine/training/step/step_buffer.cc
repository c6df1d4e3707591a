#include "engine/training/step/step_buffer.h"

#include <cstring>

#include "absl/strings/str_format.h"

namespace gyre {
namespace {

struct Up {
  StepScalars scalars;
  Fault fault;
  GateReport report;
};
struct Down {
  Fault fault;
  GateReport report;
};

template <typename T>
T Load(const Buffer& buffer) {
  T value;
  std::memcpy(&value, buffer.data(), sizeof(value));
  return value;
}

}  // namespace

absl::StatusOr<StepBuffer> StepBuffer::Create(Device& device, const Net& net) {
  StepBuffer buffer;
  buffer.net_ = &net;
  const size_t metrics = MetricsOf(net.plan().spec).size() * 2 * sizeof(double);
  const auto pinned = [&](size_t bytes) {
    return Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes);
  };
  ASSIGN_OR_RETURN(buffer.up_, pinned(sizeof(Up)));
  ASSIGN_OR_RETURN(buffer.down_, pinned(sizeof(Down)));
  ASSIGN_OR_RETURN(buffer.metrics_, pinned(metrics));
  ASSIGN_OR_RETURN(buffer.report_,
                   Buffer::Allocate(device, MemoryKind::kDevice, sizeof(GateReport)));
  buffer.SetScalars({});
  return buffer;
}

void StepBuffer::SetScalars(const StepScalars& scalars) {
  const Up up{.scalars = scalars, .fault = {}, .report = {}};
  std::memcpy(up_.data(), &up, sizeof(up));
}

GateReport* StepBuffer::gate_report() const {
  return reinterpret_cast<GateReport*>(report_.data());
}

absl::Status StepBuffer::Upload(Stream& stream) const {
  const std::byte* up = up_.data();
  RETURN_IF_ERROR(
      stream.Copy(net_->step_scalars(), up + offsetof(Up, scalars), sizeof(StepScalars)));
  RETURN_IF_ERROR(stream.Copy(net_->fault(), up + offsetof(Up, fault), sizeof(Fault)));
  return stream.Copy(gate_report(), up + offsetof(Up, report), sizeof(GateReport));
}

absl::Status StepBuffer::Download(Stream& stream) const {
  std::byte* to = metrics_.data();
  for (size_t n = 0; n < net_->plan().spec.nodes.size(); ++n) {
    const Tensor metric = net_->metric(static_cast<int>(n));
    if (!metric) continue;
    RETURN_IF_ERROR(stream.Copy(to, metric.data, metric.bytes()));
    to += metric.bytes();
  }
  std::byte* down = down_.data();
  RETURN_IF_ERROR(stream.Copy(down + offsetof(Down, fault), net_->fault(), sizeof(Fault)));
  return stream.Copy(down + offsetof(Down, report), gate_report(), sizeof(GateReport));
}

GateReport StepBuffer::gate() const { return Load<Down>(down_).report; }

Tensor StepBuffer::metrics() const {
  return {metrics_.data(), Shape({static_cast<int64_t>(metrics_.bytes() / sizeof(double))}),
          DType::kF64};
}

absl::Status StepBuffer::CheckFault(const Batch& batch) const {
  const Fault fault = Load<Down>(down_).fault;
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
