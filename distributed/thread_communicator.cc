// thread_communicator.cc: ranks as threads of one process.
//
// The bytes are copied when both ends of a message are there, straight from one rank's memory to
// the other's, so that an algorithm which touches memory of a pending request gives wrong sums in
// tests.  One mutex guards everything: this transport is for truth, not for speed.

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "distributed/communicator.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

// One end of a message.
struct Transfer {
  void* data;
  size_t bytes;
  int owner;  // the rank that posted it
  int peer;
  Clock::time_point deadline;
  bool is_send;
  bool done = false;
  size_t peer_bytes = 0;  // set when done
};

// Ends that wait for their counterpart, oldest first; of one kind, send or receive, at a time.
using Channel = std::deque<std::shared_ptr<Transfer>>;

struct Job {
  int ranks;
  std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Channel> channels;  // by (from, to, tag)
  absl::Status aborted;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Job> job, int rank) : job_(std::move(job)), rank_(rank) {}
  ~ThreadCommunicator() override {
    std::lock_guard lock(job_->mutex);
    Withdraw();
  }

  int rank() const override { return rank_; }
  int size() const override { return job_->ranks; }
  int64_t timeout_ms() const override { return job_->timeout.count(); }
  // A GPU's would need its own copies: ranks that are threads stage it through the host.
  bool moves_device_memory(DeviceKind kind) const override { return kind != DeviceKind::kCuda; }

  absl::StatusOr<Request> Send(const void* data, size_t bytes, int to, int tag) override {
    // Only read from: is_send.
    return Post({const_cast<void*>(data), bytes, rank_, to, {}, true}, {rank_, to, tag});
  }

  absl::StatusOr<Request> Receive(void* data, size_t bytes, int from, int tag) override {
    return Post({data, bytes, rank_, from, {}, false}, {from, rank_, tag});
  }

  absl::StatusOr<bool> Test(Request request) override {
    std::lock_guard lock(job_->mutex);
    RETURN_IF_ERROR(CheckAborted());
    const auto found = requests_.find(request);
    GYRE_CHECK(found != requests_.end());
    const Transfer& transfer = *found->second;
    if (!transfer.done) {
      if (Clock::now() < transfer.deadline) return false;
      const int silent = transfer.peer;
      Withdraw();
      return absl::UnavailableError(
          absl::StrCat("rank ", silent, " has been silent for ", job_->timeout.count(), " ms"));
    }
    if (!transfer.is_send && transfer.peer_bytes != transfer.bytes) {
      auto error =
          absl::InternalError(absl::StrCat("rank ", transfer.peer, " sent ", transfer.peer_bytes,
                                           " bytes, expected ", transfer.bytes));
      Withdraw();
      return error;
    }
    requests_.erase(found);
    return true;
  }

  void Abort(const absl::Status& reason) override {
    std::lock_guard lock(job_->mutex);
    if (job_->aborted.ok()) job_->aborted = reason;
  }

 private:
  absl::StatusOr<Request> Post(Transfer transfer, std::tuple<int, int, int> key) {
    GYRE_CHECK(transfer.peer >= 0 && transfer.peer < job_->ranks);
    std::lock_guard lock(job_->mutex);
    RETURN_IF_ERROR(CheckAborted());
    transfer.deadline = Clock::now() + job_->timeout;
    auto mine = std::make_shared<Transfer>(transfer);
    Channel& channel = job_->channels[key];
    if (channel.empty() || channel.front()->is_send == mine->is_send) {
      channel.push_back(mine);
    } else {
      Match(*mine, *channel.front());
      channel.pop_front();
    }
    requests_.emplace(next_request_, std::move(mine));
    return next_request_++;
  }

  static void Match(Transfer& a, Transfer& b) {
    const Transfer& send = a.is_send ? a : b;
    Transfer& receive = a.is_send ? b : a;
    if (send.bytes == receive.bytes && send.bytes > 0) {
      std::memcpy(receive.data, send.data, send.bytes);
    }
    a.peer_bytes = b.bytes;
    b.peer_bytes = a.bytes;
    a.done = b.done = true;
  }

  absl::Status CheckAborted() {
    if (!job_->aborted.ok()) Withdraw();
    return job_->aborted;
  }

  // Takes back what this rank has posted, so that no other rank touches its memory any more.
  void Withdraw() {
    for (auto& [key, channel] : job_->channels) {
      std::erase_if(channel, [&](const auto& transfer) { return transfer->owner == rank_; });
    }
  }

  const std::shared_ptr<Job> job_;
  const int rank_;
  Request next_request_ = 0;
  std::unordered_map<Request, std::shared_ptr<Transfer>> requests_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> NewThreadCommunicators(int ranks, int64_t timeout_ms) {
  GYRE_CHECK(ranks > 0);
  auto job = std::make_shared<Job>();
  job->ranks = ranks;
  job->timeout = std::chrono::milliseconds(timeout_ms);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(job, rank));
  }
  return communicators;
}

}  // namespace gyre
