// communication_thread.cc: see communication_thread.h.

#include "distributed/communication_thread.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/agreement.h"
#include "distributed/backoff.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// How often an idle thread looks after what it has sent: first soon, because the next rank may wait
// for it; then so rarely that it costs nothing.
constexpr std::chrono::milliseconds kFirstPoke{1}, kLaterPokes{64};

absl::Status Hangs(const char* call, int64_t timeout_ms, const char* why) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::DeadlineExceededError(
      absl::StrCat(call, " has not returned on host ", host, " for ", timeout_ms, " ms: ", why));
}

}  // namespace

class CommunicationThread::Impl {
 public:
  // What all ranks must have in common is the text `what` and the bytes of `content`.
  struct Operation {
    std::string what;
    std::string content;
    std::optional<Tensor> inout;  // nothing to sum: only the agreement
    MemoryKind memory = MemoryKind::kPinnedHost;
    const Event* ready = nullptr;
    Device* device = nullptr;  // to use from now on
    Ticket ticket = 0;
    double result = 0;
  };

  explicit Impl(int64_t meeting_timeout_ms) : meeting_timeout_(meeting_timeout_ms) {}

  // Returns once `make` has run, or should have.
  absl::Status Start(MakeCommunicator make, std::string algorithm);
  absl::Status Stop();
  // describe(Operation&) fills in what differs from a barrier; `what` is empty but has room.
  template <typename Describe>
  Ticket Submit(const Describe& describe);
  absl::StatusOr<bool> Done(Ticket ticket);
  absl::StatusOr<double> Wait(Ticket ticket);
  void Abort(const absl::Status& reason);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int64_t timeout_ms() const { return communicator_->timeout_ms(); }
  bool sums_device_memory() const { return sums_device_memory_; }

 private:
  enum class Phase { kOpening, kOpen, kClosing, kClosed };

  void EnterPhase(Phase phase);
  void AwaitWork(std::unique_lock<std::mutex>& lock);
  absl::Status Open(const MakeCommunicator& make, const std::string& algorithm);
  void Run();
  absl::StatusOr<double> Execute(const Operation& operation);
  absl::StatusOr<double> Reduce(Allreduce& allreduce, const Tensor& inout);
  absl::Status Use(Device& device);
  absl::Status AbortNow();
  template <typename Pass>
  absl::Status Drive(Pass pass);
  void Finish(absl::StatusOr<double> result);

  // The communication thread's own.
  std::unique_ptr<Communicator> communicator_;  // rank and size are constant: read by all
  std::string algorithm_;
  std::unique_ptr<Allreduce> allreduce_;         // of host memory
  std::unique_ptr<Allreduce> device_allreduce_;  // null: there is none
  std::unique_ptr<Agreement> agreement_;
  bool sums_device_memory_ = false;  // written before UseDevice returns

  const std::chrono::milliseconds meeting_timeout_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable work_, progress_;
  Phase phase_ = Phase::kOpening;
  bool stopping_ = false;
  std::list<Operation> queue_;    // the first is being executed
  std::list<Operation> results_;  // finished, not waited for
  std::list<Operation> spare_;    // to be used again: a steady step allocates nothing
  Ticket submitted_ = 0, finished_ = 0;
  absl::Status status_;  // the first error
  absl::Status abort_reason_;

  std::atomic<bool> aborting_ = false;
  std::thread thread_;
};

absl::Status CommunicationThread::Impl::Start(MakeCommunicator make, std::string algorithm) {
  thread_ = std::thread([this, make = std::move(make), algorithm = std::move(algorithm)] {
    AllowShortSleeps();
    const absl::Status status = Open(make, algorithm);
    {
      std::lock_guard lock(mutex_);
      status_ = status;
    }
    EnterPhase(Phase::kOpen);
    if (status.ok()) Run();
    EnterPhase(Phase::kClosing);
    // On the thread that made it, as MPI demands; and first, so that no rank writes into memory
    // that the others free.
    communicator_.reset();
    agreement_.reset();
    allreduce_.reset();
    device_allreduce_.reset();
    EnterPhase(Phase::kClosed);
  });
  std::unique_lock lock(mutex_);
  if (progress_.wait_for(lock, meeting_timeout_, [&] { return phase_ != Phase::kOpening; })) {
    return status_;
  }
  thread_.detach();
  return Hangs("MPI_Init", meeting_timeout_.count(),
               "a rank has not started, or hosts do not reach each other");
}

absl::Status CommunicationThread::Impl::Stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  work_.notify_all();
  progress_.wait(lock, [&] { return phase_ >= Phase::kClosing; });
  if (!progress_.wait_for(lock, meeting_timeout_, [&] { return phase_ == Phase::kClosed; })) {
    thread_.detach();
    return Hangs("MPI_Finalize", meeting_timeout_.count(), "another rank has not come to its end");
  }
  lock.unlock();
  thread_.join();
  return absl::OkStatus();
}

void CommunicationThread::Impl::EnterPhase(Phase phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
  progress_.notify_all();
}

absl::Status CommunicationThread::Impl::Open(const MakeCommunicator& make,
                                             const std::string& algorithm) {
  ASSIGN_OR_RETURN(communicator_, make());
  algorithm_ = algorithm;
  ASSIGN_OR_RETURN(allreduce_, NewAllreduce(algorithm, *communicator_));
  agreement_ = std::make_unique<Agreement>(*communicator_);
  return absl::OkStatus();
}

template <typename Describe>
CommunicationThread::Ticket CommunicationThread::Impl::Submit(const Describe& describe) {
  Ticket ticket;
  {
    std::lock_guard lock(mutex_);
    if (spare_.empty()) spare_.emplace_back();
    Operation& operation = spare_.front();
    std::string what = std::move(operation.what), content = std::move(operation.content);
    what.clear();
    content.clear();
    operation = {.what = std::move(what), .content = std::move(content), .inout = {}};
    describe(operation);
    operation.ticket = ticket = submitted_++;
    queue_.splice(queue_.end(), spare_, spare_.begin());
  }
  work_.notify_all();
  return ticket;
}

absl::StatusOr<bool> CommunicationThread::Impl::Done(Ticket ticket) {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  RETURN_IF_ERROR(status_);
  return ticket < finished_;
}

absl::StatusOr<double> CommunicationThread::Impl::Wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  progress_.wait(lock, [&] { return !status_.ok() || ticket < finished_; });
  RETURN_IF_ERROR(status_);
  const auto found = std::ranges::find(results_, ticket, &Operation::ticket);
  GYRE_CHECK(found != results_.end());
  spare_.splice(spare_.begin(), results_, found);
  return found->result;
}

void CommunicationThread::Impl::Abort(const absl::Status& reason) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_.ok()) abort_reason_ = reason;
    aborting_ = true;
  }
  work_.notify_all();
  communicator_->Abort(reason);
}

// With mutex_ held by `lock`.
void CommunicationThread::Impl::AwaitWork(std::unique_lock<std::mutex>& lock) {
  const auto woken = [&] { return stopping_ || !queue_.empty() || (aborting_ && status_.ok()); };
  for (auto pause = kFirstPoke; !work_.wait_for(lock, pause, woken);
       pause = std::min(2 * pause, kLaterPokes)) {
    if (!status_.ok()) continue;  // the communicator is of no more use
    lock.unlock();
    communicator_->Poke();
    lock.lock();
  }
}

void CommunicationThread::Impl::Run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    AwaitWork(lock);
    if (aborting_ && status_.ok()) {
      lock.unlock();
      Finish(AbortNow());
      continue;
    }
    if (queue_.empty()) return;
    const bool failed = !status_.ok();
    const Operation& operation = queue_.front();  // Submit does not move it
    lock.unlock();
    if (failed) {
      Finish(absl::CancelledError("after an error"));
      continue;
    }
    absl::StatusOr<double> result = Execute(operation);
    if (!result.ok()) {
      if (device_allreduce_ != nullptr) device_allreduce_->Abandon();
      result = Annotate(result.status(), operation.what);
    }
    Finish(std::move(result));
  }
}

void CommunicationThread::Impl::Finish(absl::StatusOr<double> result) {
  {
    std::lock_guard lock(mutex_);
    if (!result.ok() && status_.ok()) status_ = result.status();
    if (!queue_.empty()) {
      queue_.front().result = result.value_or(0);
      results_.splice(results_.end(), queue_, queue_.begin());
      ++finished_;
    }
  }
  progress_.notify_all();
}

absl::StatusOr<double> CommunicationThread::Impl::Execute(const Operation& operation) {
  if (operation.ready != nullptr) {
    RETURN_IF_ERROR(Drive([&]() -> absl::StatusOr<Advance> {
      ASSIGN_OR_RETURN(const bool done, operation.ready->Done());
      return done ? Advance::kDone : Advance::kWaiting;
    }));
  }
  agreement_->Start(operation.what, operation.content);
  RETURN_IF_ERROR(Drive([&] { return agreement_->Progress(); }));
  if (operation.device != nullptr) RETURN_IF_ERROR(Use(*operation.device));
  if (!operation.inout) return 0.0;
  const bool on_device = operation.memory == MemoryKind::kDevice && device_allreduce_ != nullptr;
  return Reduce(on_device ? *device_allreduce_ : *allreduce_, *operation.inout);
}

absl::StatusOr<double> CommunicationThread::Impl::Reduce(Allreduce& allreduce,
                                                         const Tensor& inout) {
  double result = 0;
  RETURN_IF_ERROR(allreduce.Start(inout));
  RETURN_IF_ERROR(Drive([&] { return allreduce.Progress(&result); }));
  return result;
}

absl::Status CommunicationThread::Impl::Use(Device& device) {
  ASSIGN_OR_RETURN(device_allreduce_, NewDeviceAllreduce(algorithm_, *communicator_, device));
  sums_device_memory_ = device.kind() == DeviceKind::kCpu || device_allreduce_ != nullptr;
  // Ranks that cannot do the same would cut their sums into other messages.
  agreement_->Start("a device whose memory can be summed", sums_device_memory_ ? "yes" : "no");
  RETURN_IF_ERROR(Drive([&] { return agreement_->Progress(); }));
  if (algorithm_ != "nccl") return absl::OkStatus();
  // It connects in its first sum: now, while an error is one of the start.
  return Reduce(*device_allreduce_, {nullptr, Shape({0}), DType::kF32}).status();
}

// On the thread that may call MPI.  Returns, where it does, the reason.
absl::Status CommunicationThread::Impl::AbortNow() {
  absl::Status reason;
  {
    std::lock_guard lock(mutex_);
    reason = abort_reason_;
  }
  communicator_->Abort(reason);
  return reason;
}

// Passes until done, an error or an abort.
template <typename Pass>
absl::Status CommunicationThread::Impl::Drive(Pass pass) {
  Backoff backoff;
  for (;;) {
    if (aborting_) return AbortNow();
    ASSIGN_OR_RETURN(const Advance advance, pass());
    if (advance == Advance::kDone) return absl::OkStatus();
    if (advance == Advance::kMoved) {
      backoff.Reset();
    } else {
      backoff.Pause();
    }
  }
}

absl::StatusOr<std::unique_ptr<CommunicationThread>> CommunicationThread::Start(
    MakeCommunicator make, std::string allreduce, int64_t meeting_timeout_ms) {
  auto impl = std::make_unique<Impl>(meeting_timeout_ms);
  absl::Status status = impl->Start(std::move(make), std::move(allreduce));
  std::unique_ptr<CommunicationThread> thread(new CommunicationThread(std::move(impl)));
  if (absl::IsDeadlineExceeded(status)) {
    static_cast<void>(thread->impl_.release());  // its thread uses it, if it ever goes on
  }
  RETURN_IF_ERROR(status);
  return thread;
}

CommunicationThread::CommunicationThread(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CommunicationThread::~CommunicationThread() { static_cast<void>(Stop()); }

absl::Status CommunicationThread::Stop() {
  if (impl_ == nullptr) return absl::OkStatus();
  const absl::Status status = impl_->Stop();
  if (!status.ok()) static_cast<void>(impl_.release());  // as in Start
  impl_.reset();
  return status;
}

int CommunicationThread::rank() const { return impl_->rank(); }
int CommunicationThread::size() const { return impl_->size(); }

absl::Status CommunicationThread::UseDevice(Device& device) {
  const std::string name(DeviceKindName(device.kind()));
  return impl_
      ->Wait(impl_->Submit([&](auto& operation) {
        absl::StrAppend(&operation.what, "the use of device ", name);
        operation.device = &device;
      }))
      .status();
}

bool CommunicationThread::sums_device_memory() const { return impl_->sums_device_memory(); }

CommunicationThread::Ticket CommunicationThread::Submit(std::string_view label, Tensor inout,
                                                        const Event* ready, MemoryKind memory) {
  GYRE_CHECK(memory == MemoryKind::kPinnedHost || sums_device_memory());
  return impl_->Submit([&](auto& operation) {
    const std::string_view dtype = DTypeName(inout.dtype);
    absl::StrAppend(&operation.what, "sum of ", inout.elements(), " ",
                    absl::string_view(dtype.data(), dtype.size()), " \"",
                    absl::string_view(label.data(), label.size()), "\"");
    operation.inout = inout;
    operation.memory = memory;
    operation.ready = ready;
  });
}

absl::StatusOr<bool> CommunicationThread::Done(Ticket ticket) { return impl_->Done(ticket); }

absl::StatusOr<double> CommunicationThread::Wait(Ticket ticket) { return impl_->Wait(ticket); }

absl::Status CommunicationThread::Sum(std::string_view label, Tensor inout) {
  return Wait(Submit(label, inout, nullptr)).status();
}

absl::Status CommunicationThread::CheckEqual(std::string_view what, std::string_view bytes) {
  return impl_
      ->Wait(impl_->Submit([&](auto& operation) {
        operation.what = what;
        operation.content = bytes;
      }))
      .status();
}

absl::Status CommunicationThread::Barrier() {
  return impl_->Wait(impl_->Submit([](auto& operation) { operation.what = "a barrier"; })).status();
}

absl::Status CommunicationThread::LeaderDoes(const std::string& what,
                                             const std::function<absl::Status()>& work) {
  if (size() == 1) return work();
  double done = 0;
  const Tensor tensor{&done, Shape({1}), DType::kF64};
  if (rank() != 0) {
    while (done == 0) RETURN_IF_ERROR(Sum(what, tensor));
    return absl::OkStatus();
  }
  // In the place of this thread, which works.
  std::promise<void> end;
  absl::Status told;
  std::thread teller([&, ended = end.get_future()] {
    const std::chrono::milliseconds pause(impl_->timeout_ms() / 8);
    while (told.ok() && done == 0) {
      if (ended.wait_for(pause) == std::future_status::ready) done = 1;
      told = Sum(what, tensor);
    }
  });
  const absl::Status status = work();
  end.set_value();
  teller.join();
  return status.ok() ? told : status;
}

void CommunicationThread::Abort(const absl::Status& reason) { impl_->Abort(reason); }

}  // namespace gyre
