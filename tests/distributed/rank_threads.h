// rank_threads.h: plays the ranks of a job as threads, and communicators that watch or disturb what
// an algorithm does.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "distributed/collectives/collective.h"
#include "distributed/transport/communicator.h"

namespace gyre {

// A test that hangs is a failure; one on a busy machine is not.
inline constexpr int64_t kPatienceMs = 30'000;

// Runs body(communicator) on one thread a rank and returns when all have.
inline void RunRanks(std::vector<std::unique_ptr<Communicator>> communicators,
                     const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    threads.emplace_back([&] { body(*communicator); });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void RunRanks(int ranks, const std::function<void(Communicator&)>& body) {
  RunRanks(NewThreadCommunicators(ranks, kPatienceMs), body);
}

// Drives a state machine to its end.
template <typename Pass>
absl::Status DriveToEnd(Pass pass) {
  Backoff backoff;
  for (;;) {
    absl::StatusOr<Advance> advance = pass();
    if (!advance.ok()) return advance.status();
    if (*advance == Advance::kDone) return absl::OkStatus();
    *advance == Advance::kMoved ? backoff.Reset() : backoff.Pause();
  }
}

// Passes everything on, and is told of what is sent.
class WrappedCommunicator : public Communicator {
 public:
  explicit WrappedCommunicator(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const void* native() const override { return inner_.native(); }
  const std::vector<int>& hosts() const override { return inner_.hosts(); }
  int64_t timeout_ms() const override { return inner_.timeout_ms(); }
  bool moves_device_memory(DeviceKind kind) const override {
    return inner_.moves_device_memory(kind);
  }
  absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                int tag) override {
    if (IsSend(kind)) Sends(bytes, peer);
    return inner_.Begin(kind, data, bytes, peer, tag);
  }
  absl::Status Withdraw(Request request) override { return inner_.Withdraw(request); }
  absl::StatusOr<bool> Test(Request request) override { return inner_.Test(request); }
  absl::Status Poke(int waiting_for) override { return inner_.Poke(waiting_for); }
  absl::Status Overdue(int rank) override { return inner_.Overdue(rank); }
  void Tell(const absl::Status& fault) override { inner_.Tell(fault); }
  void Abort(const absl::Status& reason, int exit_code) override {
    inner_.Abort(reason, exit_code);
  }

 protected:
  virtual void Sends(size_t /*bytes*/, int /*peer*/) {}

 private:
  Communicator& inner_;
};

// Counts the bytes that are sent, without claims.
class CountingCommunicator final : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;
  size_t bytes_sent() const { return bytes_sent_; }

 private:
  void Sends(size_t bytes, int) override {
    if (bytes != sizeof(Claim)) bytes_sent_ += bytes;
  }
  size_t bytes_sent_ = 0;
};

// Checks that memory stays untouched until its request is finished: no buffer that may be written
// overlaps another in use, and what is sent does not change meanwhile.
class CheckingCommunicator final : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;
  absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                int tag) override {
    const auto request = WrappedCommunicator::Begin(kind, data, bytes, peer, tag);
    if (!request.ok()) return request;
    const bool is_send = IsSend(kind);
    const char* const begin = static_cast<const char*>(data);
    for (const auto& [other, use] : in_use_) {
      const bool overlap = begin < use.data + use.bytes && use.data < begin + bytes;
      EXPECT_FALSE(overlap && !(is_send && use.is_send));
    }
    in_use_[*request] = {begin, bytes, is_send, is_send ? std::string(begin, bytes) : ""};
    return request;
  }
  absl::StatusOr<bool> Test(Request request) override {
    absl::StatusOr<bool> done = WrappedCommunicator::Test(request);
    if (!done.ok() || !*done) return done;
    const auto found = in_use_.find(request);
    EXPECT_NE(found, in_use_.end());
    const InUse& use = found->second;
    EXPECT_TRUE(!use.is_send || std::string(use.data, use.bytes) == use.content);
    in_use_.erase(found);
    return done;
  }

 private:
  struct InUse {
    const char* data;
    size_t bytes;
    bool is_send;
    std::string content;
  };

  std::unordered_map<Request, InUse> in_use_;
};

// Copies what is sent, calls it finished, and hands it on in its next call of any kind, as MPI may
// do with a short message.
class BufferingCommunicator final : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;
  absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int peer,
                                int tag) override {
    HandOn();
    if (!IsSend(kind)) return WrappedCommunicator::Begin(kind, data, bytes, peer, tag);
    const char* const begin = static_cast<const char*>(data);
    kept_.push_back({std::string(begin, begin + bytes), peer, tag});
    return kBuffered;
  }
  absl::StatusOr<bool> Test(Request request) override {
    if (request == kBuffered) return true;
    HandOn();
    return WrappedCommunicator::Test(request);
  }
  absl::Status Poke(int waiting_for) override {
    HandOn();
    return WrappedCommunicator::Poke(waiting_for);
  }

 private:
  void HandOn() {
    for (; sent_ < kept_.size(); ++sent_) {
      Kept& kept = kept_[sent_];
      EXPECT_TRUE(WrappedCommunicator::Begin(RequestKind::kSend, kept.bytes.data(),
                                             kept.bytes.size(), kept.to, kept.tag)
                      .ok());
    }
  }

  static constexpr Request kBuffered = -1;
  struct Kept {
    std::string bytes;
    int to, tag;
  };

  std::deque<Kept> kept_;
  size_t sent_ = 0;
};

// Sleeps at random, and hides at random for how many calls that a request is finished: requests
// seem to finish in any order.
class DelayingCommunicator final : public WrappedCommunicator {
 public:
  DelayingCommunicator(Communicator& inner, uint64_t seed)
      : WrappedCommunicator(inner), random_(seed * 1000 + inner.rank()) {}
  absl::StatusOr<bool> Test(Request request) override {
    auto [hidden, is_new] = hidden_.try_emplace(request, static_cast<int>(random_() % 8));
    if (hidden->second-- > 0) {
      MaybeSleep();
      return false;
    }
    hidden->second = 0;
    absl::StatusOr<bool> done = WrappedCommunicator::Test(request);
    if (!done.ok() || *done) hidden_.erase(request);
    return done;
  }

 private:
  void Sends(size_t, int) override { MaybeSleep(); }
  void MaybeSleep() {
    if (random_() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 50));
  }

  std::mt19937_64 random_;
  std::unordered_map<Request, int> hidden_;
};

}  // namespace gyre
