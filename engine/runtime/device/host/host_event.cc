#include "engine/runtime/device/host/host_event.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {

void Completion::Finish(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  result_ = status;
  finished_.notify_all();
}

void Completion::Reset() {
  std::lock_guard lock(mutex_);
  result_.reset();
}

absl::Status Completion::Wait() const {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return result_.has_value(); });
  return *result_;
}

std::optional<absl::Status> Completion::result() const {
  std::lock_guard lock(mutex_);
  return result_;
}

absl::StatusOr<std::shared_ptr<Completion>> HostEvent::Ask(const char* call) const {
  std::lock_guard lock(mutex_);
  if (captured_.point.capture == nullptr) return latest_;
  return absl::FailedPreconditionError(absl::StrCat(call, " of an event recorded in a capture"));
}

absl::StatusOr<bool> HostEvent::Done() const {
  ASSIGN_OR_RETURN(const std::shared_ptr<Completion> completion, Ask("Done"));
  if (completion == nullptr) return true;
  const std::optional<absl::Status> result = completion->result();
  if (!result) return false;
  RETURN_IF_ERROR(*result);
  return true;
}

absl::Status HostEvent::Synchronize() const {
  ASSIGN_OR_RETURN(const std::shared_ptr<Completion> completion, Ask("Synchronize"));
  return completion == nullptr ? absl::OkStatus() : completion->Wait();
}

std::shared_ptr<Completion> HostEvent::Renew() {
  std::lock_guard lock(mutex_);
  captured_ = {};
  // One that nobody else holds, to finish it or to wait for it, serves again.
  if (latest_ == nullptr || latest_.use_count() > 1) {
    latest_ = std::make_shared<Completion>();
  } else {
    latest_->Reset();
  }
  return latest_;
}

std::shared_ptr<Completion> HostEvent::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

void HostEvent::SetCaptured(Captured captured) {
  std::lock_guard lock(mutex_);
  captured_ = std::move(captured);
}

HostEvent::Captured HostEvent::captured() const {
  std::lock_guard lock(mutex_);
  return captured_;
}

HostEvent& AsHostEvent(Event& event) {
  auto* host_event = dynamic_cast<HostEvent*>(&event);
  GYRE_CHECK(host_event != nullptr);
  return *host_event;
}

const HostEvent& AsHostEvent(const Event& event) {
  const auto* host_event = dynamic_cast<const HostEvent*>(&event);
  GYRE_CHECK(host_event != nullptr);
  return *host_event;
}

}  // namespace gyre
