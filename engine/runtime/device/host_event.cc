#include "engine/runtime/device/host_event.h"

namespace gyre {

void Completion::Finish(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  result_ = status;
  finished_.notify_all();
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

absl::StatusOr<bool> HostEvent::Done() const {
  const std::shared_ptr<Completion> completion = latest();
  if (completion == nullptr) return true;
  const std::optional<absl::Status> result = completion->result();
  if (!result) return false;
  RETURN_IF_ERROR(*result);
  return true;
}

absl::Status HostEvent::Synchronize() const {
  const std::shared_ptr<Completion> completion = latest();
  return completion == nullptr ? absl::OkStatus() : completion->Wait();
}

std::shared_ptr<Completion> HostEvent::Renew() {
  auto completion = std::make_shared<Completion>();
  std::lock_guard lock(mutex_);
  latest_ = completion;
  return completion;
}

std::shared_ptr<Completion> HostEvent::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
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
