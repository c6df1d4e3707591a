// communication_thread.h: the thread that starts a communicator, drives its work and ends it.
//
// It sleeps when there is nothing to do.  A caller that waits drives in its place, so that the
// thread is not woken for the same message.  One thread drives at a time, under a lock.
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
#include "distributed/service.h"

namespace gyre {

class CommunicationThread {
 public:
  using MakeCommunicator = std::function<absl::StatusOr<std::unique_ptr<Communicator>>()>;

  CommunicationThread(int64_t meeting_timeout_ms, int64_t stall_timeout_ms)
      : meeting_timeout_(meeting_timeout_ms), stall_timeout_(stall_timeout_ms) {}

  // As ProcessGroup's.  After DeadlineExceeded this object must never be destroyed.
  absl::Status Start(MakeCommunicator make, AllreduceChoice allreduce);
  absl::Status Stop();
  void Abort(const absl::Status& reason, int exit_code);

  template <typename Describe>
  int64_t Submit(const Describe& describe);
  absl::StatusOr<bool> Done(int64_t ticket) { return queue_.Done(ticket); }
  absl::StatusOr<double> Wait(int64_t ticket);
  absl::Status Await(int64_t ticket);  // any thread
  absl::StatusOr<int64_t> WaitForMore(int64_t seen);
  // See Work::call.
  absl::Status Call(std::string_view what, const std::function<absl::Status()>& call);
  absl::Status status() { return queue_.status(); }

  // See ProcessGroup.
  absl::Status Serve(Service& service);
  absl::Status StopServing();
  absl::Status AwaitService(const std::function<bool()>& holds);

  // Any thread may call their functions that return constants.
  Communicator& communicator() { return *communicator_; }
  Lanes& lanes() { return *lanes_; }

 private:
  enum class Phase { kOpening, kOpen, kClosing, kClosed };

  void EnterPhase(Phase phase);
  absl::Status AwaitOpening();
  absl::Status Open(const MakeCommunicator& make, const AllreduceChoice& allreduce);
  void Run();
  template <typename Condition>
  absl::Status DriveUntil(const Condition& holds);
  void DriveOn();
  Advance Drive();
  absl::StatusOr<Advance> Pass();
  void Fail(const absl::Status& status);

  std::unique_ptr<Communicator> communicator_;
  std::optional<Lanes> lanes_;

  WorkQueue queue_;
  std::mutex driving_;  // guards lanes, communicator, active_ and service_
  Works active_;
  Service* service_ = nullptr;
  const std::chrono::milliseconds meeting_timeout_, stall_timeout_;
  std::chrono::milliseconds parting_timeout_{0};  // set before kOpen
  std::mutex mutex_;                              // guards phase_ and opened_
  std::condition_variable phase_changed_;
  Phase phase_ = Phase::kOpening;
  absl::Status opened_;  // error of Open
  std::thread thread_;
};

template <typename Describe>
int64_t CommunicationThread::Submit(const Describe& describe) {
  const bool by_caller = lanes_->by_caller();
  const int64_t ticket = queue_.Submit(/*call=*/!by_caller, describe);
  if (by_caller) DriveOn();
  return ticket;
}

}  // namespace gyre
