#include "engine/training/step/step_graph.h"

namespace gyre {

absl::Status StepGraph::Run() {
  if (++runs_ == 2 && capture_) {
    refusal_ = Capture();
    if (!refusal_.ok()) stretches_.clear();
    if (!refusal_.ok() && !absl::IsUnimplemented(refusal_)) return refusal_;
  }
  if (stretches_.empty()) return RunPlainly();
  for (const Stretch& stretch : stretches_) {
    RETURN_IF_ERROR(stretch.graph->Replay(stream_));
    for (const Action& action : stretch.then) RETURN_IF_ERROR(action());
  }
  return absl::OkStatus();
}

size_t StepGraph::nodes() const {
  size_t nodes = 0;
  for (const Stretch& stretch : stretches_) nodes += stretch.graph->nodes();
  return nodes;
}

absl::Status StepGraph::RunPlainly() const {
  return work_([](const Action& action) { return action(); });
}

absl::Status StepGraph::EndStretch() {
  ASSIGN_OR_RETURN(auto graph, stream_.EndCapture());
  // A launch of nothing takes time, so actions without work between them share a cut.
  const bool nothing = stream_.kind() == DeviceKind::kCuda && graph->nodes() == 0;
  if (stretches_.empty() || !nothing) stretches_.push_back({std::move(graph), {}});
  return absl::OkStatus();
}

absl::Status StepGraph::Capture() {
  bool capturing = true;
  RETURN_IF_ERROR(stream_.BeginCapture());
  const absl::Status status = work_([&](Action action) {
    capturing = false;
    RETURN_IF_ERROR(EndStretch());
    stretches_.back().then.push_back(std::move(action));
    RETURN_IF_ERROR(stream_.BeginCapture());
    capturing = true;
    return absl::OkStatus();
  });
  if (status.ok()) return EndStretch();
  if (!capturing) return status;
  // Work that cannot be captured fails like work that cannot be done.  Only the capture's end tells
  // which.
  const absl::Status ended = stream_.EndCapture().status();
  return absl::IsUnimplemented(ended) ? ended : status;
}

}  // namespace gyre
