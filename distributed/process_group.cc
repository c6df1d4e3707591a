#include "distributed/process_group.h"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/agreement.h"
#include "distributed/communication_thread.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Start(MakeCommunicator make,
                                                                  AllreduceChoice allreduce,
                                                                  int64_t meeting_timeout_ms,
                                                                  int64_t stall_timeout_ms) {
  auto thread = std::make_unique<CommunicationThread>(meeting_timeout_ms, stall_timeout_ms);
  absl::Status status = thread->Start(std::move(make), std::move(allreduce));
  std::unique_ptr<ProcessGroup> group(new ProcessGroup(std::move(thread)));
  if (absl::IsDeadlineExceeded(status)) {
    static_cast<void>(group->thread_.release());  // its thread uses it, if it ever goes on
  }
  RETURN_IF_ERROR(status);
  return group;
}

ProcessGroup::ProcessGroup(std::unique_ptr<CommunicationThread> thread)
    : thread_(std::move(thread)) {}

ProcessGroup::~ProcessGroup() { static_cast<void>(Close()); }

absl::Status ProcessGroup::Stop() {
  if (thread_ == nullptr) return absl::OkStatus();
  // Its thread would end the process, without a word: the caller has the words.
  RETURN_IF_ERROR(status());
  return Close();
}

absl::Status ProcessGroup::Close() {
  if (thread_ == nullptr) return absl::OkStatus();
  const absl::Status status = thread_->Stop();
  if (!status.ok()) static_cast<void>(thread_.release());  // as in Start
  thread_.reset();
  return status;
}

int ProcessGroup::rank() const { return thread_->communicator().rank(); }
int ProcessGroup::size() const { return thread_->communicator().size(); }

double ProcessGroup::BytesSent(size_t bytes, DType dtype) const {
  return thread_->lanes().BytesSent(bytes, dtype);
}

size_t ProcessGroup::WorthwhileBytes() const { return thread_->lanes().WorthwhileBytes(); }

std::string ProcessGroup::DescribeAllreduce() const { return thread_->lanes().Describe(); }

absl::Status ProcessGroup::UseDevice(Device& device) {
  const std::string what =
      absl::StrCat("the use of device ", std::string(DeviceKindName(device.kind())));
  RETURN_IF_ERROR(CheckEqual(what, ""));
  RETURN_IF_ERROR(thread_->Call(what, [&] { return thread_->lanes().UseDevice(device); }));
  // Ranks that cannot do the same would cut their sums into other messages.
  RETURN_IF_ERROR(
      CheckEqual("a device whose memory can be summed", sums_device_memory() ? "yes" : "no"));
  if (!thread_->lanes().connects()) return absl::OkStatus();
  // It connects in its first sum: now, while an error is one of the start.
  const Tensor nothing{nullptr, Shape({0}), DType::kF64};
  return Wait(Submit("connection", nothing, nullptr, MemoryKind::kDevice)).status();
}

size_t ProcessGroup::DeviceBytes(std::string_view allreduce, size_t bytes, int ranks) {
  return Lanes::DeviceBytes(allreduce, bytes, ranks);
}

bool ProcessGroup::sums_device_memory() const { return thread_->lanes().sums_device_memory(); }

absl::StatusOr<std::byte*> ProcessGroup::Share(size_t bytes) {
  if (size() == 1 || !thread_->lanes().sums_in_arenas()) return nullptr;
  return Map("the memory that ranks share", bytes, &Lanes::Share);
}

absl::StatusOr<std::byte*> ProcessGroup::ShareOne(size_t bytes) {
  if (size() == 1 || !thread_->lanes().on_one_host()) return nullptr;
  return Map("the memory of which ranks have one copy", bytes, &Lanes::ShareOne);
}

absl::StatusOr<std::byte*> ProcessGroup::Map(std::string_view what, size_t bytes, Mapping map) {
  RETURN_IF_ERROR(CheckEqual(what, absl::StrCat(bytes)));
  std::byte* memory = nullptr;
  RETURN_IF_ERROR(thread_->Call(what, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(memory, (thread_->lanes().*map)(bytes));
    return absl::OkStatus();
  }));
  return memory;
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view label, Tensor inout, const Event* ready,
                                          MemoryKind memory, int urgency) {
  GYRE_CHECK(memory == MemoryKind::kPinnedHost || (sums_device_memory() && urgency < kAwaited));
  return thread_->Submit([&](Work& work) {
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
  return thread_->Submit([&](Work& work) {
    work.what = what;
    work.operation = operation;
    work.root = root;
    work.inout = inout;
    work.ready = ready;
    work.urgency = urgency;
  });
}

ProcessGroup::Ticket ProcessGroup::Submit(std::string_view what, Mail* mail) {
  return thread_->Submit([&](Work& work) {
    work.what = what;
    work.operation = Operation::kExchange;
    work.mail = mail;
    work.urgency = kLeastUrgent;
  });
}

absl::Status ProcessGroup::Refuse(std::string_view what, const absl::Status& reason) {
  return thread_->Call(what, [&] {
    const std::string where = absl::StrCat("rank ", rank(), ": ", std::string(what));
    thread_->communicator().Tell(Annotate(reason, where));
    return reason;
  });
}

absl::Status ProcessGroup::status() { return thread_->status(); }

absl::StatusOr<bool> ProcessGroup::Done(Ticket ticket) { return thread_->Done(ticket); }

absl::StatusOr<double> ProcessGroup::Wait(Ticket ticket) { return thread_->Wait(ticket); }

absl::Status ProcessGroup::Await(Ticket ticket) { return thread_->Await(ticket); }

absl::StatusOr<int64_t> ProcessGroup::WaitForMore(int64_t seen) {
  return thread_->WaitForMore(seen);
}

absl::Status ProcessGroup::Sum(std::string_view label, Tensor inout) {
  return Wait(Submit(label, inout, nullptr, MemoryKind::kPinnedHost, kMostUrgent)).status();
}

absl::Status ProcessGroup::CheckEqual(std::vector<Said> said) {
  const std::string_view what = said.front().what;
  return Agreement(std::move(said), rank(), size()).Check([&](Mail* mail) {
    return Wait(Submit(what, mail)).status();
  });
}

absl::Status ProcessGroup::Barrier() {
  double nothing = 0;
  return Wait(Submit("a barrier", Operation::kAllreduce, /*root=*/0,
                     {&nothing, Shape({1}), DType::kF64}, nullptr, kMostUrgent))
      .status();
}

absl::StatusOr<std::string> ProcessGroup::TextOfLeader(std::string_view what, std::string text) {
  const bool leader = rank() == 0;
  Mail mail;
  if (!leader) mail.incoming.push_back({0});
  for (int to = 1; leader && to < size(); ++to) mail.outgoing.push_back({to, text});
  RETURN_IF_ERROR(Wait(Submit(what, &mail)).status());
  return leader ? std::move(text) : std::move(mail.incoming[0].bytes);
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
    const std::chrono::milliseconds pause(thread_->communicator().timeout_ms() / 8);
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

absl::Status ProcessGroup::Serve(Service& service) { return thread_->Serve(service); }

absl::Status ProcessGroup::StopServing() { return thread_->StopServing(); }

absl::Status ProcessGroup::AwaitService(const std::function<bool()>& holds) {
  return thread_->AwaitService(holds);
}

absl::Status ProcessGroup::Call(std::string_view what,
                                const std::function<absl::Status(Communicator&)>& call) {
  return thread_->Call(what, [&] { return call(thread_->communicator()); });
}

void ProcessGroup::Abort(const absl::Status& reason, int exit_code) {
  thread_->Abort(reason, exit_code);
}

}  // namespace gyre
