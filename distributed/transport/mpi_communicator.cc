// mpi_communicator.cc: ranks as processes under Open MPI's mpirun, or srun.
//
// Where MPI is started here, it is asked for MPI_THREAD_SERIALIZED only: one thread starts it and
// finishes it, and one at a time calls it.  Nobody else sends messages in the program, so
// MPI_COMM_WORLD needs no duplicate.  Where the program has started it, a duplicate of its
// communicator keeps the messages apart, and MPI_THREAD_MULTIPLE the threads.
//
// A rank that fails leaves without a word to MPI, and mpirun or srun ends the others: MPI_Abort in
// one rank while another is in MPI_Finalize can deadlock mpirun itself (Open MPI 4.1, PMIx 4.2).

#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/transport/communicator.h"
#include "distributed/transport/launcher.h"
#include "distributed/transport/mpi_requests.h"
#include "distributed/transport/mpi_watch.h"
#include "distributed/transport/open_mpi.h"
#include "engine/runtime/check.h"

#if defined(OPEN_MPI)  // mpi.h says so, which has to come first
#include <mpi-ext.h>
#endif

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailedExitCode = 1;

// How often a rank that waits listens for another's fault: for nothing beside what it waits for.
constexpr std::chrono::milliseconds kBetweenLooks{1};
// How often it looks whether all of its host's are alive, and what it finds must have been so
// twice: by then mpirun, which kills the others a second after it asked them to end, has ended a
// job whose rank has died.  srun ends it only if told to, and slowly.
constexpr std::chrono::seconds kBetweenRollCalls{2};
// Beyond, the others learn from this rank's end.
constexpr std::chrono::milliseconds kTellLimit{100};
// A rank that lives answers within milliseconds, on a machine that is busy or swaps within seconds.
constexpr std::chrono::milliseconds kAnswerLimit{4000};

constexpr int kHostIdBytes = 384;

// Of one below MPI_THREAD_MULTIPLE.
const char* LevelName(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED";
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(int64_t timeout_ms) : timeout_(timeout_ms) {
    requests_.Reserve(kUsualRequests);
    pending_.reserve(kUsualRequests);
  }

  absl::Status StartMpi() {
    ASSIGN_OR_RETURN(folder_, SetUpOpenMpi());
    // A message to a rank that has died must not end this one without a word.
    if (const auto before = signal(SIGPIPE, SIG_IGN); before != SIG_DFL) signal(SIGPIPE, before);
    int provided = 0;
    RETURN_IF_ERROR(CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
                             "MPI_Init_thread"));
    started_ = true;
    if (provided < MPI_THREAD_SERIALIZED) {
      return absl::UnavailableError("this MPI library cannot run in a program with threads");
    }
    all_ = MPI_COMM_WORLD;
    RETURN_IF_ERROR(Open());
    RETURN_IF_ERROR(HideSegments(folder_.get()));
    if (const int announced = AnnouncedRank().size; size_ != announced) {
      return absl::UnavailableError(absl::StrCat(Launcher(), " has announced ", announced,
                                                 " ranks, and MPI found ", size_,
                                                 "; is it that of another MPI library?"));
    }
    return absl::OkStatus();
  }

  absl::Status Duplicate(MPI_Comm comm) {
    RETURN_IF_ERROR(CheckMpi(MPI_Comm_dup(comm, &all_), "MPI_Comm_dup"));
    return Open();
  }

  // Nobody is left to hear of an error.
  ~MpiCommunicator() override {
    if (started_) {
      if (failed_) EndJob(kFailedExitCode);
      if (folder_) folder_->Restore();
      MPI_Finalize();
    } else if (all_ != MPI_COMM_NULL && !failed_) {
      MPI_Comm_free(&all_);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<int>& hosts() const override { return hosts_; }
  const void* native() const override { return &all_; }
  int64_t timeout_ms() const override { return timeout_.count(); }
  int max_tag() const override { return max_tag_; }

  // The library that runs is asked, whatever the one was that this was compiled with.
  bool moves_device_memory(DeviceKind kind) const override {
    if (kind != DeviceKind::kCuda) return true;
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
  }

  absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                int tag) override {
    RETURN_IF_ERROR(fault_);
    GYRE_CHECK(bytes <= kMostMessageBytes);
    const Request request = requests_.Add();
    pending_.resize(requests_.size());
    pending_[request] = {bytes, peer, kind, Clock::now() + timeout_};
    MPI_Request* const mpi_request = &requests_.at(request);
    const int count = static_cast<int>(bytes);
    const char* call = "MPI_Irecv";
    const int code = watch_->Over([&] {
      switch (kind) {
        case RequestKind::kSend:
          call = "MPI_Isend";
          return MPI_Isend(data, count, MPI_BYTE, peer, tag, all_, mpi_request);
        case RequestKind::kHandOver:
          call = "MPI_Issend";
          return MPI_Issend(data, count, MPI_BYTE, peer, tag, all_, mpi_request);
        default:
          return MPI_Irecv(data, count, MPI_BYTE, peer, tag, all_, mpi_request);
      }
    });
    RETURN_IF_ERROR(Checked(code, call, peer));
    return request;
  }

  absl::Status Withdraw(Request request) override {
    RETURN_IF_ERROR(fault_);
    return Checked(requests_.Cancel(request), "MPI_Cancel", pending_[request].peer);
  }

  absl::StatusOr<bool> Test(Request request) override {
    GYRE_CHECK(request >= 0 && request < static_cast<Request>(pending_.size()));
    RETURN_IF_ERROR(fault_);
    const PendingRequest& pending = pending_[request];
    bool done = false;
    MPI_Status status;
    const int code = watch_->Over([&] { return requests_.Test(request, done, status); });
    RETURN_IF_ERROR(Checked(code, "MPI_Testsome", pending.peer));
    if (!done) {
      const Clock::time_point now = requests_.looked_at();
      if (now >= next_look_) {
        next_look_ = now + kBetweenLooks;
        RETURN_IF_ERROR(Listen(pending.kind == RequestKind::kExpect ? kNobody : pending.peer));
      }
      if (pending.kind == RequestKind::kExpect || now < pending.deadline) return false;
      return Overdue(pending.peer);
    }
    if (!IsSend(pending.kind)) RETURN_IF_ERROR(CheckLength(status, pending));
    return true;
  }

  absl::Status Poke(int waiting_for) override {
    RETURN_IF_ERROR(fault_);
    return Listen(waiting_for);
  }

  absl::Status Overdue(int rank) override {
    RETURN_IF_ERROR(fault_);
    waits_for_.assign(size_, kUnheard);
    waits_for_[rank_] = rank;
    Say({.kind = Word::WordKind::kQuestion}, kNobody);
    const Clock::time_point limit = Clock::now() + std::min(timeout_, kAnswerLimit);
    while (std::ranges::count(waits_for_, kUnheard) > 0 && Clock::now() < limit) {
      RETURN_IF_ERROR(Listen(rank));
      std::this_thread::sleep_for(kBetweenLooks);
    }
    const int silent = SilentRank(waits_for_, rank);
    std::string whom;
    if (silent != kNobody) whom = absl::StrCat("rank ", silent, " on host ", host_names_[silent]);
    Tell(Silence(waits_for_, silent, whom, timeout_.count()));
    return fault_;
  }

  void Tell(const absl::Status& fault) override {
    if (!fault_.ok()) return;
    fault_ = fault;
    failed_ = true;
    Word word{.kind = Word::WordKind::kFault, .number = static_cast<int>(fault.code())};
    const absl::string_view text = fault.message();
    text.copy(word.text, std::min(text.size(), sizeof(word.text) - 1));
    std::vector<MPI_Request> requests = Say(word, kNobody);
    // Errors are no news any more.
    const Clock::time_point limit = Clock::now() + kTellLimit;
    for (int done = 0; !done && Clock::now() < limit;) {
      watch_->Over([&] {
        return MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                           MPI_STATUSES_IGNORE);
      });
    }
  }

  void Abort(const absl::Status&, int exit_code) override { EndJob(exit_code); }

 private:
  absl::Status Open() {
    RETURN_IF_ERROR(
        CheckMpi(MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    RETURN_IF_ERROR(CheckMpi(MPI_Comm_rank(all_, &rank_), "MPI_Comm_rank"));
    RETURN_IF_ERROR(CheckMpi(MPI_Comm_size(all_, &size_), "MPI_Comm_size"));
    RETURN_IF_ERROR(FindMaxTag());
    RETURN_IF_ERROR(FindHosts());
    watch_.emplace(
        [this] {
          const int dead = Dead();
          return dead == kNobody ? std::string() : HasDied(dead);
        },
        [this](const std::string& reason) {
          std::fprintf(stderr, "error: rank %d: %s\n", rank_, reason.c_str());
          EndJob(kFailedExitCode);
        });
    return absl::OkStatus();
  }

  struct PendingRequest {
    size_t bytes = 0;
    int peer = 0;
    RequestKind kind = RequestKind::kSend;
    Clock::time_point deadline;
  };

  // What ranks say to each other of themselves.
  struct Word {
    enum class WordKind : int {
      kFault,     // Tell's: `text`; its code is `number`
      kQuestion,  // for whom does the receiver wait?
      kAnswer,    // for `number`
    };
    WordKind kind = WordKind::kFault;
    int number = 0;
    char text[1016] = {};
  };

  // To one rank, or to all others (kNobody).  Errors are no news any more.
  std::vector<MPI_Request> Say(const Word& word, int to) {
    std::vector<MPI_Request> requests;
    // Short enough to go without the receiver's doing; never freed, because it may still be read.
    const auto* const kept = new Word(word);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_ || (to != kNobody && to != rank)) continue;
      watch_->Over([&] {
        return MPI_Isend(kept, sizeof(Word), MPI_BYTE, rank, kFaultTag, all_,
                         &requests.emplace_back());
      });
    }
    return requests;
  }

  // waiting_for: what this rank answers if another asks.
  absl::Status Listen(int waiting_for) {
    for (;;) {
      int heard = 0;
      MPI_Status from;
      const int code =
          watch_->Over([&] { return MPI_Iprobe(MPI_ANY_SOURCE, kFaultTag, all_, &heard, &from); });
      RETURN_IF_ERROR(CheckMpi(code, "MPI_Iprobe"));
      if (!heard) return CallTheRoll();
      Word word;
      RETURN_IF_ERROR(CheckMpi(MPI_Recv(&word, sizeof(word), MPI_BYTE, from.MPI_SOURCE, kFaultTag,
                                        all_, MPI_STATUS_IGNORE),
                               "MPI_Recv"));
      if (word.kind == Word::WordKind::kFault) {
        failed_ = true;
        return fault_ = absl::Status(static_cast<absl::StatusCode>(word.number), word.text);
      }
      if (word.kind == Word::WordKind::kQuestion) {
        Say({.kind = Word::WordKind::kAnswer, .number = waiting_for}, from.MPI_SOURCE);
      } else if (!waits_for_.empty()) {
        waits_for_[from.MPI_SOURCE] = word.number;
      }
    }
  }

  // Of this host's ranks: a message to one that has died waits for ever in memory that they share.
  absl::Status CallTheRoll() {
    const Clock::time_point now = Clock::now();
    if (now < next_roll_call_) return absl::OkStatus();
    next_roll_call_ = now + kBetweenRollCalls;
    const int missed = std::exchange(missed_, Dead());
    if (missed_ == kNobody || missed != missed_) return absl::OkStatus();
    Tell(absl::UnavailableError(HasDied(missed_)));
    return fault_;
  }

  // The first rank of this host that lives no more, or kNobody.
  int Dead() const {
    for (int rank = 0; rank < size_; ++rank) {
      if (hosts_[rank] == hosts_[rank_] && kill(pids_[rank], 0) != 0 && errno == ESRCH) return rank;
    }
    return kNobody;
  }
  std::string HasDied(int rank) const {
    return absl::StrCat("rank ", rank, " on host ", host_names_[rank], " has died");
  }

  absl::Status FindMaxTag() {
    const int* max_tag = nullptr;  // not a copy of it
    int found = 0;
    RETURN_IF_ERROR(CheckMpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max_tag, &found),
                             "MPI_Comm_get_attr"));
    if (found != 0) max_tag_ = *max_tag;
    return absl::OkStatus();
  }

  // Ranks share memory if one kernel runs them under one name and shows them each other's
  // processes: the name tells network namespaces apart that stand for hosts.
  absl::Status FindHosts() {
    char name[256] = {};
    gethostname(name, sizeof(name) - 1);
    std::string id = name, line;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), line);
    std::error_code ignored;
    id += '\0';
    absl::StrAppend(&id, line, " ",
                    std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string());
    id.resize(kHostIdBytes);
    std::vector<char> ids(static_cast<size_t>(size_) * kHostIdBytes);
    RETURN_IF_ERROR(CheckMpi(
        MPI_Allgather(id.data(), kHostIdBytes, MPI_BYTE, ids.data(), kHostIdBytes, MPI_BYTE, all_),
        "MPI_Allgather"));
    const int pid = getpid();
    pids_.resize(size_);
    RETURN_IF_ERROR(
        CheckMpi(MPI_Allgather(&pid, 1, MPI_INT, pids_.data(), 1, MPI_INT, all_), "MPI_Allgather"));
    std::map<std::string, int> numbers;
    for (int rank = 0; rank < size_; ++rank) {
      host_names_.emplace_back(ids.data() + static_cast<size_t>(rank) * kHostIdBytes);
      const std::string of(ids.data() + static_cast<size_t>(rank) * kHostIdBytes, kHostIdBytes);
      hosts_.push_back(numbers.try_emplace(of, static_cast<int>(numbers.size())).first->second);
    }
    return absl::OkStatus();
  }

  absl::Status Checked(int code, const char* call, int peer) {
    if (code == MPI_SUCCESS) return absl::OkStatus();
    failed_ = true;
    return Annotate(CheckMpi(code, call), absl::StrCat("rank ", rank_, " with rank ", peer));
  }

  // Too long a message is MPI_ERR_TRUNCATE already; too short a one is none of MPI's errors.
  absl::Status CheckLength(const MPI_Status& status, const PendingRequest& pending) {
    int received = 0;
    RETURN_IF_ERROR(
        Checked(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count", pending.peer));
    if (static_cast<size_t>(received) == pending.bytes) return absl::OkStatus();
    failed_ = true;
    return absl::InternalError(absl::StrCat("rank ", pending.peer, " sent ", received,
                                            " bytes, expected ", pending.bytes));
  }

  [[noreturn]] void EndJob(int exit_code) {
    if (folder_) folder_->Remove();
    _exit(exit_code);
  }

  const std::chrono::milliseconds timeout_;
  std::unique_ptr<SharedMemoryFolder> folder_;  // null: it is not ours to choose
  MPI_Comm all_ = MPI_COMM_NULL;
  bool started_ = false;  // MPI, here
  bool failed_ = false;
  int rank_ = 0, size_ = 1;
  int max_tag_ = 32767;  // at least, as the standard says
  std::vector<int> hosts_;
  std::vector<std::string> host_names_;  // by rank
  std::vector<int> pids_;                // by rank; they mean something on this one's host
  std::optional<MpiWatch> watch_;        // once open
  int missed_ = kNobody;                 // at the last roll call
  Clock::time_point next_roll_call_;
  absl::Status fault_;          // told or heard
  std::vector<int> waits_for_;  // of Overdue: what the others have answered
  Clock::time_point next_look_;
  MpiRequests requests_;
  std::vector<PendingRequest> pending_;  // by request
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicator(int64_t timeout_ms) {
  int started = 0;
  if (absl::Status status = CheckMpi(MPI_Initialized(&started), "MPI_Initialized");
      !status.ok() || started) {
    return absl::UnavailableError("MPI was started before in this process");
  }
  auto communicator = std::make_unique<MpiCommunicator>(timeout_ms);
  if (absl::Status status = communicator->StartMpi(); !status.ok()) {
    return absl::UnavailableError(absl::StrCat("MPI does not start: ", status.message()));
  }
  return communicator;
}

absl::StatusOr<std::unique_ptr<Communicator>> NewMpiCommunicatorOver(const void* comm,
                                                                     int64_t timeout_ms) {
  // These three may be asked at any time, on any thread.
  int started = 0, finished = 0, level = MPI_THREAD_SINGLE;
  RETURN_IF_ERROR(CheckMpi(MPI_Initialized(&started), "MPI_Initialized"));
  RETURN_IF_ERROR(CheckMpi(MPI_Finalized(&finished), "MPI_Finalized"));
  if (!started || finished) {
    return absl::FailedPreconditionError(absl::StrCat(
        "MPI ", started ? "has been finalized" : "has not been started", " in this program"));
  }
  RETURN_IF_ERROR(CheckMpi(MPI_Query_thread(&level), "MPI_Query_thread"));
  if (level < MPI_THREAD_MULTIPLE) {
    return absl::FailedPreconditionError(
        absl::StrCat("MPI was started with ", LevelName(level),
                     ", and a thread beside the program's calls it, too: expected "
                     "MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)"));
  }
  const MPI_Comm given = *static_cast<const MPI_Comm*>(comm);
  int between_groups = 0;
  if (given != MPI_COMM_NULL) {
    RETURN_IF_ERROR(CheckMpi(MPI_Comm_test_inter(given, &between_groups), "MPI_Comm_test_inter"));
  }
  if (given == MPI_COMM_NULL || between_groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a communicator of one group, got ",
                     between_groups ? "an intercommunicator" : "MPI_COMM_NULL"));
  }
  auto communicator = std::make_unique<MpiCommunicator>(timeout_ms);
  RETURN_IF_ERROR(communicator->Duplicate(given));
  return communicator;
}

}  // namespace gyre
