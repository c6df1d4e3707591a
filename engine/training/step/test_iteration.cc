#include "engine/training/step/test_iteration.h"

#include <utility>

#include "engine/training/step/enter_steps.h"

namespace gyre {

absl::StatusOr<TestIteration> TestIteration::Create(Device& device, const Net& net, Pager* pager) {
  ASSIGN_OR_RETURN(StepBuffer buffer, StepBuffer::Create(device, net));
  ASSIGN_OR_RETURN(InputUpload upload, InputUpload::Create(device, net));
  return TestIteration(net, pager, std::move(buffer), std::move(upload));
}

absl::Status TestIteration::Run(const Batch& batch, Stream& stream, const Net::SumStatistic& sum) {
  const StepGraph::Between at_once = [](const StepGraph::Action& action) { return action(); };
  buffer_.Set({.first_sample = static_cast<uint64_t>(batch.first_position)}, {});
  const auto other = [&](int, const Instruction& instruction) -> absl::Status {
    if (instruction.kind == InstructionKind::kReport) return buffer_.Download(stream);
    GYRE_CHECK(instruction.kind == InstructionKind::kUpload);
    RETURN_IF_ERROR(buffer_.Upload(stream));
    RETURN_IF_ERROR(upload_.Start(/*lane=*/0, batch, stream));
    return upload_.Deliver(/*lane=*/0, stream, *net_);
  };
  RETURN_IF_ERROR(net_->Run(stream, sum, other, EnterSteps(pager_, stream, at_once)));
  RETURN_IF_ERROR(stream.Synchronize());
  return buffer_.CheckFault(batch);
}

}  // namespace gyre
