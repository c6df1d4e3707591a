// shard_threads.h: does something to each of some shards, by several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace gyre {

// Calls `work` for 0 to count - 1, in order, `threads` at a time.  After an error no other begins.
// Returns the first error that came.
inline absl::Status ForEachShard(int64_t count, int threads,
                                 absl::FunctionRef<absl::Status(int64_t)> work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  absl::Status first;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      const absl::Status status = work(i);
      if (status.ok()) continue;
      next = count;
      const std::lock_guard lock(mutex);
      first.Update(status);
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads && t < count; ++t) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  return first;
}

}  // namespace gyre
