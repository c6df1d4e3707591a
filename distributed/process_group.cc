#include "distributed/process_group.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/transport/launcher.h"
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

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Start(MakeCommunicator make,
                                                                  AllreduceChoice allreduce,
                                                                  int64_t meeting_timeout_ms,
                                                                  int64_t stall_timeout_ms) {
  std::unique_ptr<ProcessGroup> group(new ProcessGroup(std::move(make), std::move(allreduce),
                                                       meeting_timeout_ms, stall_timeout_ms));
  absl::Status status = group->AwaitOpening();
  if (absl::IsDeadlineExceeded(status)) {
    static_cast<void>(group.release());  // its thread uses it, if it ever goes on
  }
  RETURN_IF_ERROR(status);
  return group;
}

ProcessGroup::~ProcessGroup() { static_cast<void>(Close()); }

absl::Status ProcessGroup::Stop() {
  if (!thread_.joinable()) return absl::OkStatus();
  // Its thread would end the process, without a word: the caller has the words.
  RETURN_IF_ERROR(status());
  return Close();
}

ProcessGroup::ProcessGroup(MakeCommunicator make, AllreduceChoice allreduce,
                           int64_t meeting_timeout_ms, int64_t stall_timeout_ms)
    : meeting_timeout_(meeting_timeout_ms), stall_timeout_(stall_timeout_ms) {
  std::promise<absl::Status> opened;
  std::promise<void> finished, closed;
  opened_ = opened.get_future();
  finished_ = finished.get_future();
  closed_ = closed.get_future();
  thread_ = std::thread([this, make = std::move(make), allreduce = std::move(allreduce),
                         opened = std::move(opened), finished = std::move(finished),
                         closed = std::move(closed)]() mutable {
    pthread_setname_np(pthread_self(), kMeetingThread);
    std::unique_lock driving(driving_);
    absl::Status status = Open(make, allreduce);
    const bool works = status.ok();
    if (!works) queue_.Fail(status);
    opened.set_value(std::move(status));
    if (works) {
      // Ranks may have to come together for it, and one thread may start all of them.
      const absl::Status made = lanes_->Open();
      if (!made.ok()) Fail(made);
      driving.unlock();
      Run();
      driving.lock();
    }
    // Once it has finished the group may be gone, so that the thread uses what is its own.
    auto communicator = std::move(communicator_);
    auto lanes = std::move(lanes_);
    driving.unlock();
    finished.set_value();
    // On the thread that made it, as MPI demands; and first, so that no rank writes into memory
    // that the others free.
    communicator.reset();
    lanes.reset();
    closed.set_value();
  });
}

absl::Status ProcessGroup::AwaitOpening() {
  std::string stopped;  // at the last look
  for (auto waited = kBetweenStoppedLooks;; waited += kBetweenStoppedLooks) {
    if (opened_.wait_for(kBetweenStoppedLooks) == std::future_status::ready) return opened_.get();
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

absl::Status ProcessGroup::Close() {
  if (!thread_.joinable()) return absl::OkStatus();
  queue_.Close();
  finished_.wait();
  if (closed_.wait_for(parting_timeout_) == std::future_status::ready) {
    thread_.join();
    return absl::OkStatus();
  }
  thread_.detach();
  const std::string stopped = FindAbsentRanks().stopped;
  return Hangs("MPI_Finalize", parting_timeout_.count(),
               stopped.empty() ? "another rank has not come to its end" : stopped);
}

absl::Status ProcessGroup::Open(const MakeCommunicator& make, const AllreduceChoice& allreduce) {
  ASSIGN_OR_RETURN(communicator_, make());
  // Nobody is longer silent than that, at the end either.
  parting_timeout_ =
      std::min(meeting_timeout_, std::chrono::milliseconds(communicator_->timeout_ms()));
  RETURN_IF_ERROR(CheckAllreduce(allreduce.algorithm, std::nullopt));
  RETURN_IF_ERROR(CheckWire(allreduce.algorithm, allreduce.wire));
  ASSIGN_OR_RETURN(Selector selector,
                   Selector::Calibrated(allreduce.calibration, ShapeOf(*communicator_)));
  lanes_ = std::make_unique<Lanes>(*communicator_, allreduce, std::move(selector));
  return absl::OkStatus();
}

absl::Status ProcessGroup::UseAllreduce(const std::string& algorithm) {
  RETURN_IF_ERROR(CheckAllreduce(algorithm, std::nullopt));
  constexpr char kWhat[] = "the allreduce to use";
  RETURN_IF_ERROR(CheckEqual(kWhat, algorithm));
  return Call(kWhat, [&](Communicator&) { return lanes_->UseAllreduce(algorithm); });
}

absl::Status ProcessGroup::UseDevice(Device& device) {
  const std::string what =
      absl::StrCat("the use of device ", std::string(DeviceKindName(device.kind())));
  RETURN_IF_ERROR(CheckEqual(what, ""));
  RETURN_IF_ERROR(Call(what, [&](Communicator&) { return lanes_->UseDevice(device); }));
  // Ranks that cannot do the same would cut their sums into other messages.
  RETURN_IF_ERROR(
      CheckEqual("a device whose memory can be summed", sums_device_memory() ? "yes" : "no"));
  if (!lanes_->connects()) return absl::OkStatus();
  // It connects in its first sum: now, while an error is one of the start.
  const Tensor nothing{nullptr, Shape({0}), DType::kF64};
  return Wait(Submit("connection", nothing, nullptr, MemoryKind::kDevice)).status();
}

absl::StatusOr<std::byte*> ProcessGroup::Share(size_t bytes) {
  if (size() == 1 || !lanes_->sums_in_arenas()) return nullptr;
  return Map("the memory that ranks share", bytes, /*one_copy=*/false);
}

absl::StatusOr<std::byte*> ProcessGroup::ShareOne(size_t bytes) {
  if (size() == 1 || !lanes_->on_one_host()) return nullptr;
  return Map("the memory of which ranks have one copy", bytes, /*one_copy=*/true);
}

// Other ranks have mappings of their own, and may still end an operation in them.
absl::Status ProcessGroup::Unshare() {
  return Call("the end of memory that ranks share", [this](Communicator&) {
    lanes_->Unshare();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::byte*> ProcessGroup::Map(std::string_view what, size_t bytes, bool one_copy) {
  RETURN_IF_ERROR(CheckEqual(what, absl::StrCat(bytes)));
  std::byte* memory = nullptr;
  RETURN_IF_ERROR(Call(what, [&](Communicator&) -> absl::Status {
    ASSIGN_OR_RETURN(memory, lanes_->Share(bytes, one_copy));
    return absl::OkStatus();
  }));
  return memory;
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view label, Tensor inout, const Event* ready,
                                          MemoryKind memory, int urgency) {
  GYRE_CHECK(memory == MemoryKind::kPinnedHost || (sums_device_memory() && urgency < kAwaited));
  return SubmitWork([&](Work& work) {
    const std::string_view dtype = DTypeName(inout.dtype);
    absl::StrAppend(&work.what, "sum of ", inout.elements(), " ",
                    absl::string_view(dtype.data(), dtype.size()), " \"",
                    absl::string_view(label.data(), label.size()), "\"");
    work.inout = inout;
    work.memory = memory;
    work.ready = ready;
    work.urgency = urgency;
  });
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view what, Operation operation, int root,
                                          Tensor inout, const Event* ready, int urgency) {
  return SubmitWork([&](Work& work) {
    work.what = what;
    work.operation = operation;
    work.root = root;
    work.inout = inout;
    work.ready = ready;
    work.urgency = urgency;
  });
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view what, Mail* mail) {
  return SubmitWork([&](Work& work) {
    work.what = what;
    work.operation = Operation::kExchange;
    work.mail = mail;
    work.urgency = kLeastUrgent;
  });
}

absl::Status ProcessGroup::Refuse(std::string_view what, const absl::Status& reason) {
  return Call(what, [&](Communicator&) {
    const std::string where = absl::StrCat("rank ", rank(), ": ", std::string(what));
    communicator_->Tell(Annotate(reason, where));
    return reason;
  });
}

absl::StatusOr<double> ProcessGroup::Wait(Ticket ticket) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  double result = 0;
  RETURN_IF_ERROR(DriveUntil([&] { return queue_.Collect(ticket, since, &result); }));
  return result;
}

absl::Status ProcessGroup::Await(Ticket ticket) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  for (Backoff backoff;; backoff.Pause()) {
    double ignored = 0;
    ASSIGN_OR_RETURN(const bool done, queue_.Collect(ticket, since, &ignored));
    if (done) return absl::OkStatus();
  }
}

absl::StatusOr<int64_t> ProcessGroup::WaitForMore(int64_t seen) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  int64_t done = 0;
  RETURN_IF_ERROR(DriveUntil([&] { return queue_.DoneMore(seen, since, &done); }));
  return done;
}

absl::Status ProcessGroup::Sum(std::string_view label, Tensor inout) {
  return Wait(Submit(label, inout, nullptr, MemoryKind::kPinnedHost, kMostUrgent)).status();
}

absl::Status ProcessGroup::CheckEqual(const std::vector<Said>& said) {
  return CheckAgreement(said, rank(), size(),
                        [&](Mail* mail) { return Wait(Submit(said.front().what, mail)).status(); });
}

absl::Status ProcessGroup::Barrier() {
  double nothing = 0;
  return Wait(Submit("a barrier", Operation::kAllreduce, /*root=*/0,
                     {&nothing, Shape({1}), DType::kF64}, nullptr, kMostUrgent))
      .status();
}

absl::StatusOr<std::string> ProcessGroup::TextOfLeader(std::string_view what, std::string text) {
  const bool leader = rank() == 0;
  struct Letter {
    std::string text;
    Mail mail;
  };
  const auto letter = std::make_shared<Letter>();
  letter->text = std::move(text);
  if (!leader) letter->mail.incoming.push_back({0});
  for (int to = 1; leader && to < size(); ++to) letter->mail.outgoing.push_back({to, letter->text});
  if (absl::Status sent = Wait(Submit(what, &letter->mail)).status(); !sent.ok()) {
    Keep(letter);
    return sent;
  }
  return leader ? std::move(letter->text) : std::move(letter->mail.incoming[0].bytes);
}

absl::Status ProcessGroup::LeaderDoes(const std::string& what,
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
    const std::chrono::milliseconds pause(communicator_->timeout_ms() / 8);
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

// The thread polls from now on, for messages come unasked.
absl::Status ProcessGroup::Serve(Service& service) {
  RETURN_IF_ERROR(Call("the start of a service", [&](Communicator&) {
    GYRE_CHECK(service_ == nullptr);
    service_ = &service;
    return absl::OkStatus();
  }));
  queue_.Call();
  return absl::OkStatus();
}

absl::Status ProcessGroup::StopServing() {
  std::lock_guard driving(driving_);
  service_ = nullptr;
  return queue_.status();
}

absl::Status ProcessGroup::AwaitService(const std::function<bool()>& holds) {
  return DriveUntil([&]() -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(queue_.status());
    return holds();
  });
}

absl::Status ProcessGroup::Call(std::string_view what,
                                const std::function<absl::Status(Communicator&)>& call) {
  const std::function<absl::Status()> on_ranks = [&] { return call(*communicator_); };
  return Wait(SubmitWork([&](Work& work) {
           work.what = what;
           work.call = &on_ranks;
         }))
      .status();
}

void ProcessGroup::Abort(const absl::Status& reason, int exit_code) {
  queue_.Abort(reason);
  communicator_->Abort(reason, exit_code);
}

template <typename Describe>
ProcessGroup::Ticket ProcessGroup::SubmitWork(const Describe& describe) {
  const bool by_caller = lanes_->by_caller();
  const Ticket ticket = queue_.Submit(/*call=*/!by_caller, describe);
  if (by_caller) DriveOn();
  return ticket;
}

void ProcessGroup::Run() {
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
absl::Status ProcessGroup::DriveUntil(const Condition& holds) {
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
void ProcessGroup::DriveOn() {
  std::unique_lock driving(driving_, std::try_to_lock);
  if (!driving) return;
  while (Drive() != Advance::kWaiting) {
  }
}

Advance ProcessGroup::Drive() {
  queue_.Take(active_);
  const absl::StatusOr<Advance> advance = Pass();
  if (advance.ok()) return *advance;
  Fail(advance.status());
  return Advance::kMoved;
}

// Until the most urgent operation that can go on has done so.
absl::StatusOr<Advance> ProcessGroup::Pass() {
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

void ProcessGroup::Fail(const absl::Status& status) {
  lanes_->Abandon();
  queue_.Fail(status);
}

}  // namespace gyre
