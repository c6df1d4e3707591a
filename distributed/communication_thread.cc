// communication_thread.cc: see communication_thread.h.

#include "distributed/communication_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/transport/backoff.h"
#include "distributed/transport/rank_processes.h"
#include "engine/runtime/check.h"
#include "engine/runtime/timeline.h"

namespace gyre {
namespace {

// How often an idle thread looks after what it has sent: first soon, because the next rank may wait
// for it; then so rarely that it costs nothing.
constexpr std::chrono::milliseconds kFirstPoke{1}, kLaterPokes{64};
// How often it looks after what is under way, and nobody waits for.  Late by so much is little, and
// it costs some 2 % of a core.
constexpr std::chrono::microseconds kBetweenPasses{50};

// How often it is looked whether a rank is stopped, where one is waited for.  Such looks are
// counted, not time: a process that was stopped itself, and goes on, has not waited.
constexpr std::chrono::milliseconds kBetweenStoppedLooks{1000};

absl::Status Hangs(const char* call, int64_t timeout_ms, const std::string& why) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::DeadlineExceededError(
      absl::StrCat(call, " has not returned on host ", host, " for ", timeout_ms, " ms: ", why));
}

}  // namespace

absl::Status CommunicationThread::Start(MakeCommunicator make, AllreduceChoice allreduce) {
  thread_ = std::thread([this, make = std::move(make), allreduce = std::move(allreduce)] {
    pthread_setname_np(pthread_self(), kMeetingThread);
    std::unique_lock driving(driving_);
    const absl::Status status = Open(make, allreduce);
    if (!status.ok()) queue_.Fail(status);
    {
      std::lock_guard lock(mutex_);
      opened_ = status;
    }
    EnterPhase(Phase::kOpen);
    if (status.ok()) {
      // Ranks may have to come together for it, and one thread may start all of them.
      const absl::Status made = lanes_->Open();
      if (!made.ok()) Fail(made);
      driving.unlock();
      Run();
      driving.lock();
    }
    EnterPhase(Phase::kClosing);
    // On the thread that made it, as MPI demands; and first, so that no rank writes into memory
    // that the others free.
    communicator_.reset();
    lanes_.reset();
    EnterPhase(Phase::kClosed);
  });
  return AwaitOpening();
}

absl::Status CommunicationThread::AwaitOpening() {
  std::unique_lock lock(mutex_);
  std::string stopped;  // at the last look
  for (auto waited = kBetweenStoppedLooks;; waited += kBetweenStoppedLooks) {
    if (phase_changed_.wait_for(lock, kBetweenStoppedLooks,
                                [&] { return phase_ != Phase::kOpening; })) {
      return opened_;
    }
    const bool over = waited >= meeting_timeout_;
    if (!over && waited < stall_timeout_) continue;
    const AbsentRanks absent = FindAbsentRanks();
    if (over || (!absent.stopped.empty() && absent.stopped == stopped)) {
      thread_.detach();
      return Hangs("MPI_Init", waited.count(),
                   !absent.stopped.empty() ? absent.stopped
                   : !absent.late.empty()  ? absent.late
                                           : "a rank has not started, or hosts do not reach "
                                             "each other");
    }
    stopped = absent.stopped;
  }
}

absl::Status CommunicationThread::Stop() {
  queue_.Close();
  std::unique_lock lock(mutex_);
  phase_changed_.wait(lock, [&] { return phase_ >= Phase::kClosing; });
  if (!phase_changed_.wait_for(lock, parting_timeout_, [&] { return phase_ == Phase::kClosed; })) {
    thread_.detach();
    const std::string stopped = FindAbsentRanks().stopped;
    return Hangs("MPI_Finalize", parting_timeout_.count(),
                 stopped.empty() ? "another rank has not come to its end" : stopped);
  }
  lock.unlock();
  thread_.join();
  return absl::OkStatus();
}

void CommunicationThread::EnterPhase(Phase phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
  phase_changed_.notify_all();
}

absl::Status CommunicationThread::Open(const MakeCommunicator& make,
                                       const AllreduceChoice& allreduce) {
  ASSIGN_OR_RETURN(communicator_, make());
  // Nobody is longer silent than that, at the end either.
  parting_timeout_ =
      std::min(meeting_timeout_, std::chrono::milliseconds(communicator_->timeout_ms()));
  RETURN_IF_ERROR(CheckAllreduce(allreduce.algorithm, std::nullopt));
  RETURN_IF_ERROR(CheckWire(allreduce.algorithm, allreduce.wire));
  ASSIGN_OR_RETURN(Selector selector,
                   Selector::Calibrated(allreduce.calibration, ShapeOf(*communicator_)));
  lanes_.emplace(*communicator_, allreduce, std::move(selector));
  return absl::OkStatus();
}

absl::StatusOr<double> CommunicationThread::Wait(int64_t ticket) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  double result = 0;
  RETURN_IF_ERROR(DriveUntil([&] { return queue_.Collect(ticket, since, &result); }));
  return result;
}

absl::Status CommunicationThread::Await(int64_t ticket) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  for (Backoff backoff;; backoff.Pause()) {
    double ignored = 0;
    ASSIGN_OR_RETURN(const bool done, queue_.Collect(ticket, since, &ignored));
    if (done) return absl::OkStatus();
  }
}

absl::StatusOr<int64_t> CommunicationThread::WaitForMore(int64_t seen) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  int64_t done = 0;
  RETURN_IF_ERROR(DriveUntil([&] { return queue_.DoneMore(seen, since, &done); }));
  return done;
}

absl::Status CommunicationThread::Call(std::string_view what,
                                       const std::function<absl::Status()>& call) {
  return Wait(Submit([&](Work& work) {
           work.what = what;
           work.call = &call;
         }))
      .status();
}

// The thread polls from now on, for messages come unasked.
absl::Status CommunicationThread::Serve(Service& service) {
  RETURN_IF_ERROR(Call("the start of a service", [&] {
    GYRE_CHECK(service_ == nullptr);
    service_ = &service;
    return absl::OkStatus();
  }));
  queue_.Call();
  return absl::OkStatus();
}

absl::Status CommunicationThread::StopServing() {
  std::lock_guard driving(driving_);
  service_ = nullptr;
  return queue_.status();
}

absl::Status CommunicationThread::AwaitService(const std::function<bool()>& holds) {
  return DriveUntil([&]() -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(queue_.status());
    return holds();
  });
}

void CommunicationThread::Abort(const absl::Status& reason, int exit_code) {
  queue_.Abort(reason);
  communicator_->Abort(reason, exit_code);
}

void CommunicationThread::Run() {
  auto patience = kFirstPoke;
  for (;;) {
    const bool called = queue_.AwaitCall(patience);
    std::unique_lock driving(driving_, std::try_to_lock);
    if (!driving) {
      std::this_thread::yield();  // to who drives
      continue;
    }
    Advance advance = Drive();
    while (!called && advance == Advance::kMoved) advance = Drive();
    const bool idle = active_.empty() && (service_ == nullptr || queue_.failed());
    if (idle && queue_.Rest()) return;
    patience = called || !idle ? kFirstPoke : std::min(2 * patience, kLaterPokes);
    if (!called && !queue_.failed()) {  // else the communicator is of no more use
      const absl::Status status = communicator_->Poke(kNobody);
      if (!status.ok()) Fail(status);
    }
    driving.unlock();
    if (!idle && advance == Advance::kWaiting) std::this_thread::sleep_for(kBetweenPasses);
  }
}

template <typename Condition>
absl::Status CommunicationThread::DriveUntil(const Condition& holds) {
  absl::StatusOr<bool> done = holds();
  if (!done.ok() || *done) return done.status();
  queue_.BeginWait();
  {
    std::lock_guard driving(driving_);
    Backoff backoff;
    for (done = holds(); done.ok() && !*done; done = holds()) {
      if (Drive() == Advance::kWaiting) {
        backoff.Pause();
      } else {
        backoff.Reset();
      }
    }
  }
  queue_.EndWait();
  return done.status();
}

// All that can be done at once, unless another thread drives.
void CommunicationThread::DriveOn() {
  std::unique_lock driving(driving_, std::try_to_lock);
  if (!driving) return;
  while (Drive() != Advance::kWaiting) {
  }
}

Advance CommunicationThread::Drive() {
  queue_.Take(active_);
  const absl::StatusOr<Advance> advance = Pass();
  if (advance.ok()) return *advance;
  Fail(advance.status());
  return Advance::kMoved;
}

// Until the most urgent operation that can go on has done so.
absl::StatusOr<Advance> CommunicationThread::Pass() {
  if (queue_.failed()) {
    while (!active_.empty()) queue_.Finish(active_, active_.begin());
    return Advance::kWaiting;
  }
  RETURN_IF_ERROR(queue_.aborted());
  for (auto work = active_.begin(); work != active_.end(); ++work) {
    absl::StatusOr<Advance> advance = lanes_->Drive(*work, active_);
    if (!advance.ok()) return Annotate(advance.status(), work->what);
    if (*advance == Advance::kDone) {
      lanes_->Leave(*work);
      queue_.Finish(active_, work);
    }
    if (*advance != Advance::kWaiting) return Advance::kMoved;
  }
  if (service_ != nullptr) return service_->Progress(*communicator_);
  // Those under way hear what other ranks tell; what waits for its memory alone does not.
  const auto under_way = [](const Work& work) { return work.by != nullptr; };
  if (std::ranges::none_of(active_, under_way)) RETURN_IF_ERROR(communicator_->Poke(kNobody));
  return Advance::kWaiting;
}

void CommunicationThread::Fail(const absl::Status& status) {
  lanes_->Abandon();
  queue_.Fail(status);
}

}  // namespace gyre
