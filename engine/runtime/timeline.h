// timeline.h: what this process did and when, for people: a Chrome trace, which Perfetto shows.
//
// A row is what one thread, stream or lane of communication does, one thing after the other; the
// rows of a rank stand together.  While nothing is recorded a span costs the look at one flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre {

enum class TimelineKind : uint8_t { kCompute, kCommunication, kWaiting, kInput };

struct TimelineRow {
  int rank = -1;  // -1: records nothing
  int number = 0;
};

class Timeline {
 public:
  static constexpr int64_t kMostSpans = 1'000'000;  // some 100 MB

  // Records from now on, also of threads that run already.  Once a process.  Errors: those of the
  // file.  most_spans: the rest is left out.
  static absl::Status Open(const std::string& path, int64_t most_spans = kMostSpans);
  // What follows is not recorded.  Errors: those of the file.
  static absl::Status Close();
  static bool on() { return on_.load(std::memory_order_acquire); }

  // Any thread's, as is all that follows.  Where nothing is recorded, a row that records nothing.
  static TimelineRow NewRow(int rank, std::string_view name);
  // Microseconds since 1970, so that the files of several hosts can be laid side by side.
  static double Now();
  static void Add(TimelineRow row, TimelineKind kind, std::string_view name, double begin,
                  double end);

  // The calling thread's row: none at first.
  static TimelineRow row();
  static void SetRow(TimelineRow row);

  // For streams on the host: `work`, which when it is run records itself under the label that is in
  // force now (TimelineLabel), if there is one.
  static std::function<absl::Status()> Labelled(std::function<absl::Status()> work);

 private:
  static std::atomic<bool> on_;
};

// From here to the end of the block, in the calling thread's row.  The name must live as long.
class TimelineSpan {
 public:
  TimelineSpan(TimelineKind kind, std::string_view name)
      : kind_(kind), name_(name), begin_(Timeline::on() ? Timeline::Now() : 0) {}
  ~TimelineSpan() {
    if (begin_ > 0) Timeline::Add(Timeline::row(), kind_, name_, begin_, Timeline::Now());
  }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;

 private:
  const TimelineKind kind_;
  const std::string_view name_;
  const double begin_;  // 0: nothing is recorded
};

// What the calling thread hands to streams until the end of the block is called "WHAT HOW": also a
// range of NVTX, in a build with CUDA.  Of nested blocks the inner counts.
class TimelineLabel {
 public:
  explicit TimelineLabel(std::string_view what, std::string_view how = {});
  ~TimelineLabel();
  TimelineLabel(const TimelineLabel&) = delete;
  TimelineLabel& operator=(const TimelineLabel&) = delete;

 private:
  std::string name_;  // "": nothing is recorded
  const std::string* outer_ = nullptr;
};

}  // namespace gyre
