// served_step.cc: a training step with a parameter server, in place of sums.  Its gradients are
// sent, and it ends when all ranks' gradients are.

#include "engine/training/step/training_step.h"

namespace gyre {

absl::Status TrainingStep::StartServing(int64_t step) {
  if (!server_->begun()) RETURN_IF_ERROR(server_->Begin(step));
  if (server_->gate() != nullptr) {
    RETURN_IF_ERROR(server_->PassGate());
    diverged_ = server_->gate()->diverged();
    if (diverged_) return NotFinite(server_->gate()->report().bad_bucket);
  }
  return server_->EndStep();
}

absl::Status TrainingStep::Settle() {
  return served() && server_->begun() ? server_->Settle() : absl::OkStatus();
}

absl::Status TrainingStep::Stop() {
  return served() && server_->begun() ? server_->Stop() : absl::OkStatus();
}

absl::Status TrainingStep::ReadyToServe(int bucket, const StepGraph::Between& between,
                                        const Net::Enter& enter) {
  const Net& net = model_.train();
  const int ready = net.plan().trace.ready_steps[bucket];
  if (ready >= 0) {
    RETURN_IF_ERROR(enter(net.At(ready)));
    RETURN_IF_ERROR(net.ClearPadding(stream_, bucket));
  }
  if (!gates_alone()) return Push(bucket, between);
  return SumSquares(stream_, net.bucket(bucket, ready), net.sums_scratch(),
                    net.sums().as<double>() + bucket);
}

absl::Status TrainingStep::Push(int bucket, const StepGraph::Between& between) {
  return between([this, bucket] { return server_->Push(bucket); });
}

absl::Status TrainingStep::EndStep(int lane, const StepGraph::Between& between,
                                   const Net::Enter& enter) {
  const Net& net = model_.train();
  StepScalars* const block = net.step_scalars();
  UpdateScalars* const update = &block->updates[lane];
  const Tensor sums = net.sums();
  const auto buckets = static_cast<int>(sums.elements());
  if (server_->gate() != nullptr) {
    RETURN_IF_ERROR(between([this] { return server_->PassGate(); }));
    RETURN_IF_ERROR(stream_.Copy(sums.data, server_->gate()->sums(), sums.bytes()));
  }
  if (gate_.holds()) {
    RETURN_IF_ERROR(PassGate(stream_, gate_, sums.as<double>(), buckets, update, block));
  }
  for (int b = 0; gates_alone() && b < buckets; ++b) {
    const int leave = net.plan().trace.leave_steps[b];
    if (leave >= 0) RETURN_IF_ERROR(enter(net.At(leave)));
    RETURN_IF_ERROR(ScaleOrSpoil(stream_, net.bucket(b, leave), update, &block->gradients));
    RETURN_IF_ERROR(Push(b, between));
  }
  return between([this] { return server_->EndStep(); });
}

}  // namespace gyre
