// gyre_collectives.cc: a process group whose algorithm is "auto", which has all operations, and
// the checks that calls from elsewhere need.

#include "distributed/gyre_collectives.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/process_group.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

// Pinned slots through which operations on device memory go, each used again and again.
class PinnedStaging {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedStaging>> Create(Device& device) {
    std::unique_ptr<PinnedStaging> staging(new PinnedStaging(device));
    ASSIGN_OR_RETURN(staging->stream_, device.NewStream());
    return staging;
  }

  // Takes a slot and begins to copy there.
  absl::StatusOr<int64_t> CopyIn(void* data, size_t bytes) {
    size_t slot = 0;
    while (slot < slots_.size() && slots_[slot].taken) ++slot;
    if (slot == slots_.size()) {
      ASSIGN_OR_RETURN(slots_.emplace_back().copied, device_.NewEvent());
    }
    StagingSlot& mine = slots_[slot];
    if (mine.memory.bytes() < bytes) {
      mine.memory = Buffer();  // first, so that both need not have room
      ASSIGN_OR_RETURN(mine.memory, Buffer::Allocate(device_, MemoryKind::kPinnedHost, bytes));
    }
    RETURN_IF_ERROR(stream_->Copy(mine.memory.data(), data, bytes));
    RETURN_IF_ERROR(stream_->Record(*mine.copied));
    mine.data = data;
    mine.bytes = bytes;
    mine.taken = true;
    return static_cast<int64_t>(slot);
  }
  void* host(int64_t slot) const { return slots_[slot].memory.data(); }
  const Event& copied(int64_t slot) const { return *slots_[slot].copied; }

  // Blocks; the slot is free again.
  absl::Status CopyOut(int64_t slot) {
    StagingSlot& mine = slots_[slot];
    RETURN_IF_ERROR(stream_->Copy(mine.data, mine.memory.data(), mine.bytes));
    RETURN_IF_ERROR(stream_->Synchronize());
    mine.taken = false;
    return absl::OkStatus();
  }

 private:
  struct StagingSlot {
    Buffer memory;
    std::unique_ptr<Event> copied;
    void* data = nullptr;  // in device memory
    size_t bytes = 0;
    bool taken = false;
  };

  explicit PinnedStaging(Device& device) : device_(device) {}

  Device& device_;
  std::vector<StagingSlot> slots_;
  std::unique_ptr<Stream> stream_;  // finishes before the slots go
};

struct Collectives::Call {
  const char* name;
  Operation operation;
  int root;
  void* data;
  int64_t count;
  DType type;
  Memory memory;
};

namespace {

absl::StatusOr<std::unique_ptr<ProcessGroup>> StartGroup(ProcessGroup::MakeCommunicator make) {
  auto group = ProcessGroup::Start(std::move(make), {"auto"});
  if (!absl::IsDeadlineExceeded(group.status())) return group;
  return absl::DeadlineExceededError(absl::StrCat("not all ranks have started collectives within ",
                                                  ProcessGroup::kMeetingTimeoutMs, " ms"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collectives>> Collectives::Start(MPI_Comm comm, int64_t timeout_ms) {
  ASSIGN_OR_RETURN(auto group,
                   StartGroup([=] { return NewMpiCommunicatorOver(&comm, timeout_ms); }));
  return std::unique_ptr<Collectives>(new Collectives(std::move(group)));
}

absl::StatusOr<std::unique_ptr<Collectives>> Collectives::StartMpi(int64_t timeout_ms) {
  RETURN_IF_ERROR(CheckLauncher());
  ASSIGN_OR_RETURN(auto group, StartGroup([=] { return NewMpiCommunicator(timeout_ms); }));
  return std::unique_ptr<Collectives>(new Collectives(std::move(group)));
}

Collectives::Collectives(std::unique_ptr<ProcessGroup> group) : group_(std::move(group)) {}

// After an error messages may still be under way to memory of any operation: all that has some, and
// the thread that knows of it, stays.
Collectives::~Collectives() {
  if (group_->status().ok()) return;
  static_cast<void>(group_.release());
  static_cast<void>(staging_.release());
}

int Collectives::rank() const { return group_->rank(); }
int Collectives::size() const { return group_->size(); }

absl::Status Collectives::UseDevice(Device& device) {
  if (staging_ != nullptr) return absl::FailedPreconditionError("a device is in use already");
  ASSIGN_OR_RETURN(staging_, PinnedStaging::Create(device));
  return absl::OkStatus();
}

Collectives::Pending Collectives::Allreduce(void* data, int64_t count, DType type, Memory memory) {
  return Begin({"allreduce", Operation::kAllreduce, 0, data, count, type, memory});
}

Collectives::Pending Collectives::ReduceScatter(void* data, int64_t count, DType type,
                                                Memory memory) {
  return Begin({"reduce-scatter", Operation::kReduceScatter, 0, data, count, type, memory});
}

Collectives::Pending Collectives::Allgather(void* data, int64_t count, DType type, Memory memory) {
  return Begin({"allgather", Operation::kAllgather, 0, data, count, type, memory});
}

Collectives::Pending Collectives::Broadcast(void* data, int64_t count, DType type, int root,
                                            Memory memory) {
  return Begin({"broadcast", Operation::kBroadcast, root, data, count, type, memory});
}

// What goes wrong on this rank alone would leave the others waiting.
Collectives::Pending Collectives::Begin(const Call& call) {
  const std::string_view type = DTypeName(call.type);
  what_.clear();
  absl::StrAppend(&what_, call.name, " of ", call.count, " ",
                  absl::string_view(type.data(), type.size()));
  if (call.operation == Operation::kBroadcast) absl::StrAppend(&what_, " from rank ", call.root);
  Pending pending;
  pending.status_ = Submit(call, pending);
  if (pending.status_.ok()) {
    pending.owner_ = this;
  } else {
    pending.status_ = group_->Refuse(what_, pending.status_);
  }
  return pending;
}

absl::Status Collectives::Submit(const Call& call, Pending& pending) {
  if (call.count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("count: expected 0 or more, got ", call.count));
  }
  const Shape shape({call.count});
  if (!shape.IsCountable()) {
    return absl::InvalidArgumentError(
        absl::StrCat("count: expected 2^56 at most, got ", call.count));
  }
  if (call.data == nullptr && call.count > 0) return absl::InvalidArgumentError("data: is null");
  if (call.root < 0 || call.root >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root: expected 0 to ", size() - 1, ", got ", call.root));
  }
  if (call.operation == Operation::kAllreduce || call.operation == Operation::kReduceScatter) {
    RETURN_IF_ERROR(CheckSummable(call.type));
  }
  Tensor tensor{call.data, shape, call.type};
  const Event* ready = nullptr;
  if (call.memory == Memory::kDevice) {
    if (staging_ == nullptr) {
      return absl::FailedPreconditionError(
          "device memory, and no device is in use: UseDevice first");
    }
    ASSIGN_OR_RETURN(pending.staged_, staging_->CopyIn(call.data, tensor.bytes()));
    tensor.data = staging_->host(pending.staged_);
    ready = &staging_->copied(pending.staged_);
  }
  pending.ticket_ = group_->Submit(what_, call.operation, call.root, tensor, ready);
  return absl::OkStatus();
}

absl::Status Collectives::Finish(const Pending& pending) {
  RETURN_IF_ERROR(group_->Wait(pending.ticket_).status());
  if (pending.staged_ < 0) return absl::OkStatus();
  const absl::Status status = staging_->CopyOut(pending.staged_);
  return status.ok() ? status : group_->Refuse("a copy to device memory", status);
}

Collectives::Pending::Pending(Pending&& other) noexcept { *this = std::move(other); }

Collectives::Pending& Collectives::Pending::operator=(Pending&& other) noexcept {
  if (this == &other) return *this;
  static_cast<void>(Wait());
  owner_ = std::exchange(other.owner_, nullptr);
  ticket_ = other.ticket_;
  staged_ = other.staged_;
  status_ = other.status_;
  return *this;
}

Collectives::Pending::~Pending() { static_cast<void>(Wait()); }

absl::StatusOr<bool> Collectives::Pending::Done() {
  if (owner_ != nullptr) return owner_->group_->Done(ticket_);
  if (!status_.ok()) return status_;
  return true;
}

absl::Status Collectives::Pending::Wait() {
  if (owner_ != nullptr) status_ = std::exchange(owner_, nullptr)->Finish(*this);
  return status_;
}

}  // namespace gyre
