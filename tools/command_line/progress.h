// progress.h: how far a long job is, on stderr: a line that rewrites itself on a terminal, or else
// a line now and then.  Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace gyre {

class Progress {
 public:
  // Of so many samples.  `verb` is what is done to them, such as "packed".
  Progress(std::string verb, int64_t samples);
  ~Progress();  // removes the line of a terminal

  // So many samples more, and so many bytes, are done.  Without bytes the rate is of samples.
  void Add(int64_t samples, uint64_t bytes);
  int64_t samples() const { return done_; }  // done, when no thread adds
  uint64_t bytes() const { return bytes_; }
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  const std::string verb_;
  const int64_t samples_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  Clock::time_point shown_ = start_;
  int64_t done_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace gyre
