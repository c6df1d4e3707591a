// process_group.h: a rank's word with the others: sums, comparisons, memory that is shared.
//
// A thread makes the communicator and drives the submitted operations, several at once, the most
// urgent first; it sleeps when there are none.  Whoever waits drives in its place.  All ranks must
// submit the same operations in the same order.  An operation's place in that order travels ahead
// of its first bytes, with a hash of what it is: a mismatch is an error on all ranks that names
// both sides' labels, not a hang.  All but Abort and Await are called from one other thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/agreement.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/service.h"
#include "distributed/transport/communicator.h"
#include "distributed/work_queue.h"
#include "engine/runtime/device/device.h"

namespace gyre {

class CommunicationThread;
class Lanes;

class ProcessGroup {
 public:
  using MakeCommunicator = std::function<absl::StatusOr<std::unique_ptr<Communicator>>()>;
  using Ticket = int64_t;

  // How long ranks may take to find each other (MPI_Init), and at most to part (MPI_Finalize), if
  // the communicator's time limit is not shorter.
  static constexpr int64_t kMeetingTimeoutMs = 120'000;

  // Starts the thread; `make` runs on it.  allreduce must be the same on all ranks: if not,
  // FailedPrecondition is every ticket's error.  Errors: those of `make`; InvalidArgument listing
  // the names of algorithms, or saying what is wrong with the calibration or the wire;
  // DeadlineExceeded if `make` does not return in time, or after stall_timeout_ms, if a rank of
  // this host is stopped then: its thread is left behind, and the process should end.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Start(
      MakeCommunicator make, AllreduceChoice allreduce,
      int64_t meeting_timeout_ms = kMeetingTimeoutMs, int64_t stall_timeout_ms = kMeetingTimeoutMs);
  // Finishes what was submitted (without waiting for events after an error), then the communicator;
  // nothing else may follow.  Errors: the first error so far, when nothing is finished; say it
  // before this object ends, which may end the process.  DeadlineExceeded, likewise, if the
  // communicator does not end.
  absl::Status Stop();
  // Stops, if that was not done.
  ~ProcessGroup();

  int rank() const;
  int size() const;

  // By the rank that sends most, to sum so many bytes of this type in host memory.
  double BytesSent(size_t bytes, DType dtype) const;
  // From how many bytes on a sum is worth its start; the same on all ranks
  // (collectives/selector.h).
  size_t WorthwhileBytes() const;
  // All that it may be, for people.
  std::string DescribeAllreduce() const;

  // Tells where device memory is, so that it may be summed where it lies, if that can be done.
  // Blocks.  Once, on all ranks; the device must outlive this object.  Takes device memory in the
  // first sums only (DeviceBytes), but for nccl, which connects its ranks at once.
  // Errors: those of NewDeviceCollective; FailedPrecondition on every rank if the ranks' devices
  // differ.
  absl::Status UseDevice(Device& device);
  // The device memory that it then takes for sums of tensors of up to `bytes`; for the plan.  NCCL
  // takes more, unplanned, of its own.
  // Precondition: `allreduce` is one of the names.
  static size_t DeviceBytes(std::string_view allreduce, size_t bytes, int ranks);
  // Whether Submit takes memory of the device in use; false before UseDevice, constant after it.
  // Always true of a cpu device, whose memory is the host's.
  bool sums_device_memory() const;

  // Host memory of zeros, aligned to pages, in which sums are made where they lie; null where the
  // algorithm has no use for it (one rank is alone, too), or the host no room.  It lives as long as
  // this object.  Blocks until all ranks have called it with the same `bytes`, and what was
  // submitted before is done.  Errors: those of Sum.
  absl::StatusOr<std::byte*> Share(size_t bytes);
  // Likewise, but one and the same memory for all ranks, whatever the algorithm; null where they
  // are on several hosts, too.
  absl::StatusOr<std::byte*> ShareOne(size_t bytes);

  // Sums `inout` over all ranks in place once *ready is done (null: at once).  memory: where it is;
  // host memory is always taken, kDevice where sums_device_memory().  The label names the bucket in
  // errors.  *ready and the memory must live until the ticket is done or has failed; after a
  // device's own error until Abort or the end of this object, because messages may be under way.
  // When the ticket is done, work enqueued on any stream finds the sum.  Of sums that can go on,
  // the more urgent does; the most urgent, such as metrics, lie in host memory and wait for none in
  // order; those that a stream awaits (kAwaited) lie there, too, and wait for each other alone.
  Ticket Submit(std::string_view label, Tensor inout, const Event* ready,
                MemoryKind memory = MemoryKind::kPinnedHost, int urgency = 0);
  // Likewise, any operation on host memory that the algorithm has ("auto" has all).  what: says all
  // that is the same on all ranks; names it in errors.  root: of a broadcast.
  Ticket Submit(std::string_view what, Operation operation, int root, Tensor inout,
                const Event* ready, int urgency = 0);
  // Bytes from ranks to others (exchange.h), behind everything else: training goes on meanwhile.
  // Each rank submits one with what it sends and is sent, if anything.  *mail must live until the
  // ticket is done; after an error until the job has ended.
  Ticket Submit(std::string_view what, Mail* mail);
  // In place of an operation that this rank cannot submit.  Blocks until those before it are done,
  // and makes `reason` the error of every rank.  Errors: reason, named by `what`.
  absl::Status Refuse(std::string_view what, const absl::Status& reason);
  // The first error so far.
  absl::Status status();
  // Of a ticket that was not waited for.  Errors: those of the reduction, with its label; after the
  // first error every ticket has it.
  absl::StatusOr<bool> Done(Ticket ticket);
  // Blocks.  The sum's own sum of squares; once a ticket: it is then forgotten.  Errors: as Done's.
  absl::StatusOr<double> Wait(Ticket ticket);
  // Wait on any thread, such as a stream's, that leaves the work to others.  Errors: as Done's.
  absl::Status Await(Ticket ticket);
  // Blocks until more than `seen` of all tickets so far have been done, waited for or not; returns
  // how many have.  Errors: as Done's.
  absl::StatusOr<int64_t> WaitForMore(int64_t seen);

  // Submit and Wait, ahead of what is in order; of host memory.
  absl::Status Sum(std::string_view label, Tensor inout);
  // All ranks give the same bytes.  Errors: FailedPrecondition on every rank, naming the first rank
  // that differs from rank 0, `what`, and the first line that differs.
  absl::Status CheckEqual(std::string_view what, std::string_view bytes) {
    return CheckEqual({{what, bytes}});
  }
  // Several at once.
  absl::Status CheckEqual(std::vector<Said> said);
  // Blocks until all ranks have come here.
  absl::Status Barrier();
  // Runs `work`, such as writing a checkpoint, on rank 0, while the others wait here, however long
  // it takes: as long as it runs, rank 0 is not silent.  Errors: of `work`, on rank 0 alone, which
  // is to Abort; those of Sum.
  absl::Status LeaderDoes(const std::string& what, const std::function<absl::Status()>& work);

  // One service at a time, which outlives its time: until StopServing whoever drives calls it.  On
  // a rank that serves the thread does not sleep.  Errors: the first so far.
  absl::Status Serve(Service& service);
  absl::Status StopServing();
  // Blocks, driving, until the service has come to what `holds` asks.  Errors: the first so far.
  absl::Status AwaitService(const std::function<bool()>& holds);
  // `call`, in place of an operation, once all before it are done; may wait for other ranks.
  absl::Status Call(std::string_view what, const std::function<absl::Status(Communicator&)>& call);

  // Ends the job with this reason and exit code (Communicator::Abort) from any thread; prints
  // nothing.  Where ranks are threads it returns, and every ticket of every rank fails with the
  // reason.
  void Abort(const absl::Status& reason, int exit_code = 1);

 private:
  using Mapping = absl::StatusOr<std::byte*> (Lanes::*)(size_t bytes);
  absl::StatusOr<std::byte*> Map(std::string_view what, size_t bytes, Mapping map);

  explicit ProcessGroup(std::unique_ptr<CommunicationThread> thread);
  absl::Status Close();
  std::unique_ptr<CommunicationThread> thread_;
};

}  // namespace gyre
