// communication_thread.h: the thread that makes every call of a communicator, from its start to its
// end; it sleeps when there is nothing to do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "distributed/lanes.h"

namespace gyre {

class CommunicationThread {
 public:
  using MakeCommunicator = std::function<absl::StatusOr<std::unique_ptr<Communicator>>()>;

  explicit CommunicationThread(int64_t meeting_timeout_ms) : meeting_timeout_(meeting_timeout_ms) {}

  // As ProcessGroup's; after DeadlineExceeded this must never be destroyed.
  absl::Status Start(MakeCommunicator make, AllreduceChoice allreduce);
  absl::Status Stop();
  void Abort(const absl::Status& reason);

  // Blocks.  See Work::call.
  absl::Status Call(std::string_view what, const std::function<absl::Status()>& call);

  WorkQueue& queue() { return queue_; }
  // What these two have that is constant is anyone's.
  Communicator& communicator() { return *communicator_; }
  Lanes& lanes() { return *lanes_; }

 private:
  enum class Phase { kOpening, kOpen, kClosing, kClosed };

  void EnterPhase(Phase phase);
  absl::Status Open(const MakeCommunicator& make, const AllreduceChoice& allreduce);
  void Run();
  absl::StatusOr<Advance> Pass(Works& active);
  void Fail(const absl::Status& status);

  std::unique_ptr<Communicator> communicator_;
  std::optional<Lanes> lanes_;

  WorkQueue queue_;
  const std::chrono::milliseconds meeting_timeout_;
  std::chrono::milliseconds parting_timeout_{0};  // set before kOpen
  std::mutex mutex_;                              // guards what follows
  std::condition_variable phase_changed_;
  Phase phase_ = Phase::kOpening;
  absl::Status opened_;  // the start's error
  std::thread thread_;
};

}  // namespace gyre
