// mpi_watch.h: a thread that sees where a call of MPI's does not come back.
//
// None that it watches blocks, but Open MPI goes round for ever within one after it has sent twice
// over a TCP connection whose other end has died (4.1): then no thread can be told of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace gyre {

class MpiWatch {
 public:
  // Both on the watch's thread.  cause: what may have led to it; empty if nothing is known.  end:
  // ends the process for this reason.
  MpiWatch(std::function<std::string()> cause, std::function<void(const std::string&)> end);
  ~MpiWatch();

  // By one thread at a time, and not within another call.
  template <typename Call>
  auto Over(const Call& call) {
    Count();
    const auto result = call();
    Count();
    return result;
  }

 private:
  // One writer at a time, and nothing else is read by it: as cheap as a plain addition.
  void Count() {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void Run();

  const std::function<std::string()> cause_;
  const std::function<void(const std::string&)> end_process_;
  std::atomic<int64_t> count_ = 0;  // odd: within a call
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace gyre
