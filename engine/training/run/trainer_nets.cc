// Which nets a trainer's next step runs: those of the run's phase, and of the player's turn.

#include "engine/runtime/wrapped_text.h"
#include "engine/training/run/trainer.h"

namespace gyre {
namespace {

// Of ranks that have no closer bound: within so many steps all hear that one is asked to stop.
constexpr size_t kMostStepsApart = 16;

}  // namespace

absl::Status Trainer::CreateModel() {
  ASSIGN_OR_RETURN(stream_, device_.NewStream());
  ASSIGN_OR_RETURN(model_,
                   Model::Create(std::move(plan_->nets), device_, *stream_, &communication_));
  RETURN_IF_ERROR(state_->Restore(*model_, *stream_));
  if (const auto& server = options().shape.server) {
    const auto staleness = static_cast<size_t>(server->staleness);
    reports_left_ =
        server->sync == Sync::kAsync ? kMostStepsApart : std::min(staleness, kMostStepsApart);
  }
  return CreateStep(state_->loss_scale);
}

absl::Status Trainer::CreateStep(const std::optional<LossScaleState>& loss_scale) {
  const auto learning_rate = [this](int64_t step) { return LearningRate(step); };
  training_steps_.clear();
  for (int player = 0; player < model_->turns(); ++player) {
    ASSIGN_OR_RETURN(training_steps_.emplace_back(),
                     TrainingStep::Create(*model_, *optimizer_, device_, *stream_, communication_,
                                          /*replay=*/true, learning_rate, player));
    training_steps_.back()->SetGroups(state_->skipped_before);
  }
  training_step_ = training_steps_.front().get();
  return loss_scale ? training_step_->SetLossScale(*loss_scale) : absl::OkStatus();
}

absl::Status Trainer::EnterPhase() {
  RETURN_IF_ERROR(FinishAll());
  if (stop_at_ >= 0) {  // of which all ranks know by now
    stop_at_ = state_->step();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Save());
  RETURN_IF_ERROR(training_step_->Stop());
  RETURN_IF_ERROR(state_->FinishSaving());
  RETURN_IF_ERROR(ReportPaging());
  paged_ = {};
  since_.reset();
  finished_ = updates_ = 0;
  reported_ = false;
  training_step_ = nullptr;
  training_steps_.clear();
  model_.reset();  // first, for there may not be room for both
  RETURN_IF_ERROR(communication_.Unshare());
  RETURN_IF_ERROR(plan_->UsePhase(state_->step()));
  state_->Say(Wrapped("", plan_->DescribePhase()));
  RETURN_IF_ERROR(state_->FindSaved(plan_->nets));
  return CreateModel();
}

absl::Status Trainer::TakeTurn() {
  const int player = options().shape.TurnAt(state_->step()).player;
  TrainingStep* const next = training_steps_[static_cast<size_t>(player)].get();
  if (next == training_step_) return absl::OkStatus();
  RETURN_IF_ERROR(FinishAll());
  RETURN_IF_ERROR(model_->TakeTurn(player, *stream_));
  training_step_ = next;
  return absl::OkStatus();
}

}  // namespace gyre
