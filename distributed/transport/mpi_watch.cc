#include "distributed/transport/mpi_watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace gyre {
namespace {

constexpr int kFailedExitCode = 1;

// Looks, not time: a process that is stopped and goes on has not waited.
constexpr std::chrono::seconds kBetweenLooks{1};
constexpr int kMostLooks = 20, kMostLooksWithCause = 5;

}  // namespace

MpiWatch::MpiWatch(int rank, std::function<std::string()> cause)
    : rank_(rank), cause_(std::move(cause)), thread_([this] { Run(); }) {}

MpiWatch::~MpiWatch() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void MpiWatch::Run() {
  std::unique_lock lock(mutex_);
  int64_t seen = 0;
  int looks = 0;  // at the same call
  while (!ended_.wait_for(lock, kBetweenLooks, [&] { return end_; })) {
    const int64_t count = count_;
    looks = count % 2 == 1 && count == seen ? looks + 1 : 0;
    seen = count;
    if (looks < kMostLooksWithCause) continue;
    const std::string cause = cause_();
    if (cause.empty() && looks < kMostLooks) continue;
    std::fprintf(stderr, "error: rank %d: %s%sMPI has not come back from a call for %d s\n", rank_,
                 cause.c_str(), cause.empty() ? "" : "; ", looks);
    _exit(kFailedExitCode);
  }
}

}  // namespace gyre
