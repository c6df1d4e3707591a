// thread_communicator.cc: ranks as threads of one process.
//
// The bytes are copied when both ends of a message are there, straight from one rank's memory to
// the other's, so that an algorithm which touches memory of a pending request gives wrong sums in
// tests.  One mutex guards everything: this transport is for truth, not for speed.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/transport/communicator.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

// One end of a message.
struct MessageEnd {
  enum class State : uint8_t { kFree, kPosted, kDone };
  State state = State::kFree;
  RequestKind kind = RequestKind::kSend;
  int owner = 0;  // the rank that posted it
  int peer = 0, tag = 0;
  void* data = nullptr;
  size_t bytes = 0;
  size_t peer_bytes = 0;  // set when done
  Clock::time_point deadline = {};
};

bool BelongTogether(const MessageEnd& a, const MessageEnd& b) {
  return a.owner == b.peer && a.peer == b.owner && a.tag == b.tag &&
         IsSend(a.kind) != IsSend(b.kind);
}

struct ThreadJob {
  int ranks;
  std::vector<int> hosts;
  std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::vector<MessageEnd*> posted;  // those that wait for their counterpart, oldest first
  absl::Status aborted;
  std::vector<int> waiting_for;  // by rank: by other means than messages
};

// That shares no text: Abseil's count of those who do is an atomic that TSan does not see.
absl::Status OwnCopy(const absl::Status& status) { return {status.code(), status.message()}; }

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadJob> job, int rank)
      : job_(std::move(job)), rank_(rank), ends_(kUsualRequests) {}
  ~ThreadCommunicator() override {
    std::lock_guard lock(job_->mutex);
    Withdraw();
  }

  int rank() const override { return rank_; }
  int size() const override { return job_->ranks; }
  const std::vector<int>& hosts() const override { return job_->hosts; }
  int64_t timeout_ms() const override { return job_->timeout.count(); }
  // A GPU's would need its own copies: ranks that are threads stage it through the host.
  bool moves_device_memory(DeviceKind kind) const override { return kind != DeviceKind::kCuda; }

  absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                int tag) override {
    GYRE_CHECK(peer >= 0 && peer < job_->ranks);
    std::lock_guard lock(job_->mutex);
    RETURN_IF_ERROR(CheckAborted());
    // Places are taken again, so that a steady state allocates nothing.
    auto place = std::ranges::find(ends_, MessageEnd::State::kFree, &MessageEnd::state);
    if (place == ends_.end()) place = ends_.emplace(place);
    MessageEnd& mine = *place;
    mine = {.state = MessageEnd::State::kPosted,
            .kind = kind,
            .owner = rank_,
            .peer = peer,
            .tag = tag,
            .data = data,
            .bytes = bytes,
            .deadline = Clock::now() + job_->timeout};
    const auto other = std::ranges::find_if(
        job_->posted, [&](const MessageEnd* other) { return BelongTogether(mine, *other); });
    if (other == job_->posted.end()) {
      job_->posted.push_back(&mine);
    } else {
      Match(mine, **other);
      job_->posted.erase(other);
    }
    return place - ends_.begin();
  }

  absl::Status Withdraw(Request request) override {
    std::lock_guard lock(job_->mutex);
    RETURN_IF_ERROR(CheckAborted());
    MessageEnd& end = ends_[request];
    GYRE_CHECK(end.kind == RequestKind::kExpect && end.state == MessageEnd::State::kPosted);
    std::erase(job_->posted, &end);
    end.state = MessageEnd::State::kFree;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Test(Request request) override {
    std::lock_guard lock(job_->mutex);
    RETURN_IF_ERROR(CheckAborted());
    GYRE_CHECK(request >= 0 && request < static_cast<Request>(ends_.size()));
    MessageEnd& end = ends_[request];
    GYRE_CHECK(end.state != MessageEnd::State::kFree);
    if (end.state == MessageEnd::State::kPosted) {
      if (end.kind == RequestKind::kExpect || Clock::now() < end.deadline) return false;
      return Accuse(end.peer);
    }
    if (!IsSend(end.kind) && end.peer_bytes != end.bytes) {
      auto error = absl::InternalError(absl::StrCat("rank ", end.peer, " sent ", end.peer_bytes,
                                                    " bytes, expected ", end.bytes));
      Withdraw();
      return error;
    }
    end.state = MessageEnd::State::kFree;
    return true;
  }

  absl::Status Poke(int waiting_for) override {
    std::lock_guard lock(job_->mutex);
    job_->waiting_for[rank_] = waiting_for;
    return CheckAborted();
  }

  absl::Status Overdue(int rank) override {
    std::lock_guard lock(job_->mutex);
    RETURN_IF_ERROR(CheckAborted());
    return Accuse(rank);
  }

  void Tell(const absl::Status& fault) override {
    std::lock_guard lock(job_->mutex);
    TellAll(fault);
  }

  void Abort(const absl::Status& reason, int /*exit_code*/) override { Tell(reason); }

 private:
  void TellAll(const absl::Status& fault) {
    if (job_->aborted.ok()) job_->aborted = OwnCopy(fault);
  }

  // Nobody needs to be asked here.
  absl::Status Accuse(int rank) {
    std::vector<int> waits_for = job_->waiting_for;
    // The oldest message that a rank waits for is what counts.
    for (auto end = job_->posted.rbegin(); end != job_->posted.rend(); ++end) {
      if ((*end)->kind != RequestKind::kExpect) waits_for[(*end)->owner] = (*end)->peer;
    }
    waits_for[rank_] = rank;
    const int silent = SilentRank(waits_for, rank);
    // An answer would tell nothing: this process lives.
    std::ranges::fill(waits_for, kNobody);
    if (silent != kNobody) waits_for[silent] = kUnheard;
    TellAll(Silence(waits_for, silent, absl::StrCat("rank ", silent), job_->timeout.count()));
    return CheckAborted();
  }

  static void Match(MessageEnd& a, MessageEnd& b) {
    const MessageEnd& send = IsSend(a.kind) ? a : b;
    MessageEnd& receive = IsSend(a.kind) ? b : a;
    if (send.bytes == receive.bytes && send.bytes > 0) {
      std::memcpy(receive.data, send.data, send.bytes);
    }
    a.peer_bytes = b.bytes;
    b.peer_bytes = a.bytes;
    a.state = b.state = MessageEnd::State::kDone;
  }

  absl::Status CheckAborted() {
    if (!job_->aborted.ok()) Withdraw();
    return OwnCopy(job_->aborted);
  }

  // Takes back what this rank has posted, so that no other rank touches its memory any more.
  void Withdraw() {
    std::erase_if(job_->posted, [&](const MessageEnd* end) { return end->owner == rank_; });
  }

  const std::shared_ptr<ThreadJob> job_;
  const int rank_;
  std::deque<MessageEnd> ends_;  // by request; where they are, they stay
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> NewThreadCommunicators(int ranks, int64_t timeout_ms,
                                                                  std::vector<int> hosts) {
  GYRE_CHECK(ranks > 0 && timeout_ms > 0);
  GYRE_CHECK(hosts.empty() || static_cast<int>(hosts.size()) == ranks);
  auto job = std::make_shared<ThreadJob>();
  job->ranks = ranks;
  job->hosts = hosts.empty() ? std::vector<int>(ranks) : std::move(hosts);
  job->timeout = std::chrono::milliseconds(timeout_ms);
  job->waiting_for.assign(ranks, kNobody);
  job->posted.reserve(static_cast<size_t>(ranks) * kUsualRequests);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(job, rank));
  }
  return communicators;
}

}  // namespace gyre
