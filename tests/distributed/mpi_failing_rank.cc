// mpi_failing_rank.cc: ranks of which rank 1 goes wrong, in the way that the argument names, while
// the others sum.  See mpi_abort_test.sh.

#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "distributed/process_group.h"
#include "distributed/transport/launcher.h"

namespace gyre {
namespace {

constexpr int64_t kTimeoutMs = 3000;
const absl::Status kReason = absl::DataLossError("rank 1 lost its data");

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}

// Receives another length than was sent; the time limit must not be what ends it.
int RunUnequalLengths(bool longer) {
  auto communicator = NewMpiCommunicator(/*timeout_ms=*/60'000);
  if (!communicator.ok()) return Fail(communicator.status());
  std::vector<char> data(1000);
  const bool receives = (*communicator)->rank() == 1;
  auto request = receives ? (*communicator)->Receive(data.data(), longer ? 900 : 1000, 0, 0)
                          : (*communicator)->Send(data.data(), longer ? 1000 : 900, 1, 0);
  if ((*communicator)->rank() > 1) return 0;
  if (!request.ok()) return Fail(request.status());
  const absl::Status status = WaitFor(**communicator, *request);
  if (!status.ok()) Fail(status);
  return 0;  // the communicator's destructor ends the job
}

// Dies with a message unread, and is sent more before MPI hears of it.
int RunUnread() {
  auto communicator = NewMpiCommunicator(/*timeout_ms=*/60'000);
  if (!communicator.ok()) return Fail(communicator.status());
  Communicator& ranks = **communicator;
  MPI_Barrier(MPI_COMM_WORLD);
  if (ranks.rank() == 1) {
    sleep(1);
    raise(SIGKILL);
  }
  const int message = 0;
  absl::Status status;
  for (int i = 0; i < 9 && status.ok(); ++i) {
    status = ranks.Send(&message, sizeof(message), 1, 0).status();
    if (i == 0) sleep(2);
  }
  int answer = 0;
  if (status.ok()) {
    const auto request = ranks.Receive(&answer, sizeof(answer), 1, 0);
    status = request.ok() ? WaitFor(ranks, *request) : request.status();
  }
  return Fail(status);
}

int Run(const std::string& fault) {
  if (fault == "unread") return RunUnread();
  if (fault == "longer" || fault == "shorter") return RunUnequalLengths(fault == "longer");
  const bool is_rank_1 = AnnouncedRank().rank == 1;
  while (fault == "late" && is_rank_1) pause();
  if (fault == "stop_early" && is_rank_1) raise(SIGSTOP);
  // A busy machine may take long to start what is to fail later.
  auto started =
      ProcessGroup::Start([] { return NewMpiCommunicator(kTimeoutMs); }, {"ring"},
                          fault == "late" ? kTimeoutMs : ProcessGroup::kMeetingTimeoutMs,
                          fault == "stop_early" ? kTimeoutMs : ProcessGroup::kMeetingTimeoutMs);
  if (!started.ok()) _exit(Fail(started.status()));
  if (fault == "stays" || fault == "stop_late") {
    if (fault == "stop_late" && (*started)->Barrier().ok() && is_rank_1) raise(SIGSTOP);
    while (is_rank_1) pause();
    _exit(Fail((*started)->Stop()));
  }
  ProcessGroup& group = **started;
  std::vector<float> data(1'000'000);
  if (fault == "mismatch") {
    const absl::Status status =
        group.Sum("fc", {data.data(), {is_rank_1 ? 99'000 : 100'000}, DType::kF32});
    _exit(status.ok() ? 0 : Fail(status));
  }
  const Tensor tensor{data.data(), {static_cast<int64_t>(data.size())}, DType::kF32};
  if (absl::Status status = group.Sum("warm-up", tensor); !status.ok()) return Fail(status);
  if (group.rank() == 1) {
    if (fault == "kill") raise(SIGKILL);
    if (fault == "stop") raise(SIGSTOP);
    if (fault == "cut" && std::system("PATH=$PATH:/usr/sbin ip link set eth0 down") != 0) return 2;
    if (fault == "exit") _exit(3);
    while (fault == "hang") pause();
    if (fault == "abort_idle" || fault == "abort_busy") {
      Fail(kReason);
      if (fault == "abort_busy") group.Submit("step", tensor, nullptr);
      group.Abort(kReason);
    }
    if (fault == "abort_elsewhere") {
      Fail(kReason);
      std::thread([&] { group.Abort(kReason); }).join();
    }
  }
  for (;;) {
    if (absl::Status status = group.Sum("step", tensor); !status.ok()) {
      Fail(status);
      group.Abort(status);
    }
  }
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return argc == 2 ? gyre::Run(argv[1]) : 2; }
