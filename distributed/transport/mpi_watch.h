// mpi_watch.h: a thread that ends the process if an MPI call does not return.
//
// No watched call blocks.  But Open MPI 4.1 loops for ever in one after it has sent twice over a
// TCP connection whose other end has died.  No thread can then learn of an error.
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
  // Calls both on the watch's thread.  `cause` returns a possible cause, or "".  `end` ends the
  // process with the given reason.
  MpiWatch(std::function<std::string()> cause, std::function<void(const std::string&)> end);
  ~MpiWatch();

  // Watches `call`.  One thread at a time, and not nested.
  template <typename Call>
  auto Over(const Call& call) {
    Count();
    const auto result = call();
    Count();
    return result;
  }

 private:
  // There is one writer at a time, so this costs no more than a plain addition.
  void Count() {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void Run();

  const std::function<std::string()> cause_;
  const std::function<void(const std::string&)> end_process_;
  std::atomic<int64_t> count_ = 0;  // odd during a call
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace gyre
