#include "tools/command_line/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "engine/runtime/count_text.h"

namespace gyre {

Progress::Progress(std::string verb, int64_t samples)
    : verb_(std::move(verb)), samples_(samples), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (terminal_ && shown_ > start_) std::fprintf(stderr, "\r\033[K");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::Add(int64_t samples, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_ += samples;
  bytes_ += bytes;
  const Clock::time_point now = Clock::now();
  const auto between = terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
  if (done_ == 0 || now - shown_ < between) return;
  shown_ = now;
  const double elapsed = std::max(seconds(), 1e-9);
  const double left = elapsed / static_cast<double>(done_) * static_cast<double>(samples_ - done_);
  const std::string rate =
      bytes_ > 0 ? absl::StrFormat("%.0f MB/s", static_cast<double>(bytes_) / 1e6 / elapsed)
                 : absl::StrFormat("%.3g samples/s", static_cast<double>(done_) / elapsed);
  const std::string text =
      absl::StrFormat("%s %d of %s  %s  %s left", verb_, done_, Counted(samples_, "sample"), rate,
                      absl::FormatDuration(absl::Seconds(static_cast<int64_t>(left + 0.5))));
  std::fprintf(stderr, "%s%s%s", terminal_ ? "\r\033[K" : "", text.c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace gyre
