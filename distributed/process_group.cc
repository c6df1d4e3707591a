#include "distributed/process_group.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// How often it is looked whether a rank is stopped, where one is waited for.  Such looks are
// counted, not time: a process that was stopped itself, and goes on, has not waited.
constexpr std::chrono::milliseconds kBetweenStoppedLooks{1000};

absl::Status Hangs(const char* call, int64_t timeout_ms, const std::string& why) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::DeadlineExceededError(
      absl::StrCat(call, " has not returned on host ", host, " for ", timeout_ms, " ms: ", why));
}

// Blocks until `opened` is set.  DeadlineExceeded as ProcessGroup::Start.
absl::Status AwaitOpening(std::future<absl::Status>& opened,
                          std::chrono::milliseconds meeting_timeout,
                          std::chrono::milliseconds stall_timeout) {
  std::string stopped;  // at the last look
  for (auto waited = kBetweenStoppedLooks;; waited += kBetweenStoppedLooks) {
    if (opened.wait_for(kBetweenStoppedLooks) == std::future_status::ready) return opened.get();
    const bool over = waited >= meeting_timeout;
    if (!over && waited < stall_timeout) continue;
    const AbsentRanks absent = FindAbsentRanks();
    if (over || (!absent.stopped.empty() && absent.stopped == stopped)) {
      return Hangs("MPI_Init", waited.count(),
                   !absent.stopped.empty() ? absent.stopped
                   : !absent.late.empty()  ? absent.late
                                           : "a rank has not started, or hosts do not reach "
                                             "each other");
    }
    stopped = absent.stopped;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Start(MakeCommunicator make,
                                                                  AllreduceChoice allreduce,
                                                                  int64_t meeting_timeout_ms,
                                                                  int64_t stall_timeout_ms) {
  std::unique_ptr<ProcessGroup> group(new ProcessGroup(std::move(allreduce)));
  std::promise<absl::Status> opening;
  std::promise<void> finished, closed;
  std::future<absl::Status> opened = opening.get_future();
  group->finished_ = finished.get_future();
  group->closed_ = closed.get_future();
  group->thread_ =
      std::thread([lanes = group->lanes_, make = std::move(make), opening = std::move(opening),
                   finished = std::move(finished), closed = std::move(closed)]() mutable {
        pthread_setname_np(pthread_self(), kMeetingThread);
        lanes->Run(make, std::move(opening));
        finished.set_value();
        lanes->End();  // on the thread that made the communicator, as MPI demands
        closed.set_value();
      });
  const std::chrono::milliseconds meeting_timeout(meeting_timeout_ms);
  const absl::Status status =
      AwaitOpening(opened, meeting_timeout, std::chrono::milliseconds(stall_timeout_ms));
  if (absl::IsDeadlineExceeded(status)) {
    group->thread_.detach();
    return status;
  }
  // Nobody is longer silent than that, at the end either.
  group->parting_timeout_ =
      std::min(meeting_timeout, std::chrono::milliseconds(group->lanes_->timeout_ms()));
  RETURN_IF_ERROR(status);
  return group;
}

ProcessGroup::ProcessGroup(AllreduceChoice allreduce)
    : lanes_(std::make_shared<Lanes>(std::move(allreduce))) {
  what_.reserve(256);
}

ProcessGroup::~ProcessGroup() { static_cast<void>(Close()); }

absl::Status ProcessGroup::Stop() {
  if (!thread_.joinable()) return absl::OkStatus();
  // Its thread would end the process, without a word: the caller has the words.
  RETURN_IF_ERROR(status());
  return Close();
}

absl::Status ProcessGroup::Close() {
  if (!thread_.joinable()) return absl::OkStatus();
  lanes_->Close();
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
  const std::string_view dtype = DTypeName(inout.dtype);
  what_.clear();
  absl::StrAppend(&what_, "sum of ", inout.elements(), " ",
                  absl::string_view(dtype.data(), dtype.size()), " \"",
                  absl::string_view(label.data(), label.size()), "\"");
  return lanes_->Submit(what_,
                        {.inout = inout, .memory = memory, .urgency = urgency, .ready = ready});
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view what, Operation operation, int root,
                                          Tensor inout, const Event* ready, int urgency) {
  return lanes_->Submit(
      what,
      {.operation = operation, .root = root, .inout = inout, .urgency = urgency, .ready = ready});
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view what, Mail* mail) {
  return lanes_->Submit(what,
                        {.operation = Operation::kExchange, .mail = mail, .urgency = kLeastUrgent});
}

absl::Status ProcessGroup::Refuse(std::string_view what, const absl::Status& reason) {
  return Call(what, [&](Communicator& communicator) {
    const std::string where = absl::StrCat("rank ", rank(), ": ", std::string(what));
    communicator.Tell(Annotate(reason, where));
    return reason;
  });
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
    const std::chrono::milliseconds pause(lanes_->timeout_ms() / 8);
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

absl::Status ProcessGroup::Serve(Service& service) {
  return Call("the start of a service", [&](Communicator&) {
    lanes_->Serve(service);
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Call(std::string_view what,
                                const std::function<absl::Status(Communicator&)>& call) {
  return Wait(lanes_->Submit(what, {.call = &call})).status();
}

}  // namespace gyre
