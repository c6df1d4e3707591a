// process_group.h: the ranks of a run, with sums, comparisons and shared memory over all of them.
//
// A thread starts the communicator, drives several submitted operations at once, the most urgent
// first, and ends it.  It sleeps when there are none.  A caller that waits drives in its place, so
// that the thread is not woken for the same message.  All ranks submit the same operations in the
// same order.  An operation's number and hash precede its first bytes, so a mismatch does not hang.
// It is an error on all ranks, which names both labels.  All calls but Abort and Await come from
// one other thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/agreement.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/lanes.h"
#include "distributed/transport/communicator.h"
#include "engine/runtime/device/device.h"

namespace gyre {

class ProcessGroup {
 public:
  using MakeCommunicator = Lanes::MakeCommunicator;
  using Ticket = int64_t;

  // Limit of MPI_Init.  That of MPI_Finalize is this or, if shorter, the communicator's time limit.
  static constexpr int64_t kMeetingTimeoutMs = 120'000;

  // Starts the thread and calls `make` on it.  Blocks.  Ranks with different `allreduce` get
  // FailedPrecondition from every ticket.
  // Errors: those of `make`, and InvalidArgument for the algorithm (lists the names), the
  // calibration or the wire type.  DeadlineExceeded if `make` takes longer than meeting_timeout_ms,
  // or than stall_timeout_ms while a rank of this host is stopped.  Its thread is then left behind,
  // and the process should end.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Start(
      MakeCommunicator make, AllreduceChoice allreduce,
      int64_t meeting_timeout_ms = kMeetingTimeoutMs, int64_t stall_timeout_ms = kMeetingTimeoutMs);
  // Finishes the submitted operations, then the communicator.  Nothing else may follow.
  // Errors: the first error so far, and then nothing is finished.  Report it before this object is
  // destroyed, which may end the process.  DeadlineExceeded if the communicator does not end, as in
  // Start.
  absl::Status Stop();
  // Stops, if Stop was not called.  Does not wait for events after an error.
  ~ProcessGroup();

  int rank() const { return lanes_->communicator().rank(); }
  int size() const { return lanes_->communicator().size(); }

  // Bytes that the rank that sends most sends for a sum of `bytes` in host memory.
  double BytesSent(size_t bytes, DType dtype) const { return lanes_->BytesSent(bytes, dtype); }
  // Size from which a sum is worth its start (collectives/choice/selector.h).  Equal on all ranks.
  size_t WorthwhileBytes() const { return lanes_->WorthwhileBytes(); }
  // The name of the algorithm.
  const std::string& algorithm() const { return lanes_->algorithm(); }
  // The algorithm, its wire type and the hosts, for people.
  std::string DescribeAllreduce() const { return lanes_->Describe(); }

  // Whether UseAllreduce can take it here.  Equal on all ranks.
  bool CanUse(std::string_view algorithm) const { return lanes_->CanUse(algorithm); }
  // Sums by another algorithm from now on, the same on all ranks.  Blocks.  Precondition: no
  // UseDevice or Share before.  Errors: as Start's, and FailedPrecondition if ranks name others.
  absl::Status UseAllreduce(const std::string& algorithm);

  // Lets sums work on memory of `device` in place, if the algorithm and the communicator can.
  // Called once, on all ranks.  Blocks.  The device must outlive this object.  The first sums
  // allocate device memory (DeviceBytes), but nccl connects its ranks in this call.
  // Errors: those of NewDeviceCollective, and FailedPrecondition on every rank if devices differ.
  absl::Status UseDevice(Device& device);
  // Device memory for sums of tensors of up to `bytes`, for the plan.  NCCL allocates more, which
  // no plan has.  Precondition: `allreduce` is one of the names.
  static size_t DeviceBytes(std::string_view allreduce, size_t bytes, int ranks) {
    return Lanes::DeviceBytes(allreduce, bytes, ranks);
  }
  // Whether Submit accepts memory of the device.  False before UseDevice, constant after it, and
  // true for a cpu device, whose memory is the host's.
  bool sums_device_memory() const { return lanes_->sums_device_memory(); }

  // Returns zeroed host memory, aligned to pages, in which ranks sum in place.  Null for one rank,
  // for an algorithm that has no use for it, and if the host has no room.  It lives until Unshare,
  // or as long as this object.  Blocks until all ranks have called it with equal `bytes` and
  // earlier operations are done.  Errors: those of Sum.
  absl::StatusOr<std::byte*> Share(size_t bytes);
  // Likewise, but one memory for all ranks and for any algorithm.  Also null on several hosts.
  absl::StatusOr<std::byte*> ShareOne(size_t bytes);
  // Gives all such memory back.  All ranks call it, after the same operations.  Blocks until
  // earlier operations are done.  Precondition: the caller uses none of it.  Errors: the first so
  // far.
  absl::Status Unshare();

  // Sums `inout` over all ranks in place, once *ready (or null) is done.
  //   label        names the bucket in errors
  //   memory       kDevice requires sums_device_memory() and an urgency below kAwaited
  //   urgency      among sums that can go on, the highest does
  //   kMostUrgent  for metrics and such; waits for no operation in order
  //   kAwaited     for sums that a stream awaits; waits for others of its kind alone
  // Lifetime: *ready and the memory, until the ticket is done or has failed.  After an error of the
  // device, until Abort or the end of this object, because messages may be under way.
  // Once the ticket is done, work that is enqueued on any stream finds the sum.
  Ticket Submit(std::string_view label, Tensor inout, const Event* ready,
                MemoryKind memory = MemoryKind::kPinnedHost, int urgency = 0);
  // Any operation of the algorithm ("auto" has all) on host memory, likewise.  `what` names it in
  // errors and holds all that is the same on all ranks.  `root` is that of a broadcast.
  Ticket Submit(std::string_view what, Operation operation, int root, Tensor inout,
                const Event* ready, int urgency = 0);
  // Sends bytes to other ranks (exchange.h), behind all other operations.  Every rank submits one,
  // even if it sends and receives nothing.  *mail must live until the ticket is done or, after an
  // error, until the job has ended.
  Ticket Submit(std::string_view what, Mail* mail);
  // Takes the place of an operation that this rank cannot submit.  Blocks until the operations
  // before it are done.  Returns `reason`, annotated by `what`, and makes it every rank's error.
  absl::Status Refuse(std::string_view what, const absl::Status& reason);
  // The first error so far.
  absl::Status status() { return lanes_->status(); }
  // Whether the operation is done.  Precondition: no wait for the ticket.
  // Errors: those of the operation, with its label.  After the first error every ticket has it.
  absl::StatusOr<bool> Done(Ticket ticket) { return lanes_->Done(ticket); }
  // Blocks.  Returns the sum of squares of the sum, and forgets the ticket.  Errors: as Done's.
  absl::StatusOr<double> Wait(Ticket ticket) { return lanes_->Wait(ticket); }
  // Wait on any thread, such as a stream's, without driving.  Errors: as Done's.
  absl::Status Await(Ticket ticket) { return lanes_->Await(ticket); }
  // Blocks until more than `seen` tickets are done, and returns how many are.  Errors: as Done's.
  absl::StatusOr<int64_t> WaitForMore(int64_t seen) { return lanes_->WaitForMore(seen); }

  // Submit and Wait for a sum of host memory, before operations in order.
  absl::Status Sum(std::string_view label, Tensor inout);
  absl::Status Sum(std::string_view label, std::span<double> inout) {
    return Sum(label,
               Tensor{inout.data(), Shape({static_cast<int64_t>(inout.size())}), DType::kF64});
  }
  // Checks that all ranks pass the same bytes.  Errors: FailedPrecondition on every rank, with
  // `what`, the first rank that differs from rank 0, and the first line that differs.
  absl::Status CheckEqual(std::string_view what, std::string_view bytes) {
    return CheckEqual({{what, bytes}});
  }
  absl::Status CheckEqual(const std::vector<Said>& said);
  absl::Status Barrier();
  // Returns rank 0's text on all ranks.  Blocks.  Errors: as Done's.
  absl::StatusOr<std::string> TextOfLeader(std::string_view what, std::string text);
  // Runs `work`, such as writing a checkpoint, on rank 0.  Blocks on all ranks until it has
  // returned, however long it takes.  Rank 0 does not count as silent meanwhile.
  // Errors: those of Sum, and those of `work` on rank 0 alone, which then calls Abort.
  absl::Status LeaderDoes(const std::string& what, const std::function<absl::Status()>& work);

  // Lets the driving thread call `service`, one at a time, until StopServing.  The service outlives
  // that time, and the thread does not sleep.  Errors: the first so far.
  absl::Status Serve(Service& service);
  absl::Status StopServing() { return lanes_->StopServing(); }
  // Blocks, and drives, until `holds` returns true.  Errors: the first so far.
  absl::Status AwaitService(const std::function<bool()>& holds) {
    return lanes_->AwaitService(holds);
  }
  // Runs `call` once all earlier operations are done.  It may wait for other ranks.
  absl::Status Call(std::string_view what, const std::function<absl::Status(Communicator&)>& call);

  // Ends the job with this exit code (Communicator::Abort), without printing.  Any thread.  If
  // ranks are threads it returns, and every ticket of every rank fails with `reason`.
  void Abort(const absl::Status& reason, int exit_code = 1) { lanes_->Abort(reason, exit_code); }

 private:
  explicit ProcessGroup(AllreduceChoice allreduce);
  absl::Status Close();
  absl::StatusOr<std::byte*> Map(std::string_view what, size_t bytes, bool one_copy);

  const std::shared_ptr<Lanes> lanes_;  // also the thread's, which may be left behind
  std::string what_;                    // of the last sum; reused memory
  std::chrono::milliseconds parting_timeout_{0};
  std::future<void> finished_, closed_;  // all operations are done; the communicator has ended
  std::thread thread_;
};

}  // namespace gyre
