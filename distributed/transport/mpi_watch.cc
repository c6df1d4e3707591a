#include "distributed/transport/mpi_watch.h"

#include <chrono>
#include <utility>

namespace gyre {
namespace {

// Looks, not time: a process that is stopped and goes on has not waited.
constexpr std::chrono::seconds kBetweenLooks{1};
constexpr int kMostLooks = 20, kMostLooksWithCause = 5;

}  // namespace

MpiWatch::MpiWatch(std::function<std::string()> cause, std::function<void(const std::string&)> end)
    : cause_(std::move(cause)), end_process_(std::move(end)), thread_([this] { Run(); }) {}

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
    end_process_(cause + (cause.empty() ? "" : "; ") + "MPI has not come back from a call for " +
                 std::to_string(looks) + " s");
  }
}

}  // namespace gyre
