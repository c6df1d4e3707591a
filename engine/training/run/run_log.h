// run_log.h: what a run tells: metrics.jsonl for programs; progress with rate and ETA for people, a
// line that rewrites itself on a terminal and plain lines otherwise.  Only rank 0 has one.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/training/metrics/metrics.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// Progress of a step as a line of at most `columns`: of metrics as many as there is room for.
std::string ProgressText(int64_t step, int64_t steps, const std::vector<std::string>& metrics,
                         double samples_per_second, double seconds_left, size_t columns);

// A test's line, or lines of so many columns, the first of which begins with the step.
std::string TestText(int64_t step, int64_t steps, const std::vector<std::string>& metrics,
                     size_t columns);

// Gives an earlier run's `folder`/metrics.jsonl a name of its own, metrics.1.jsonl or the next that
// is free, and returns its path; "" if there is none.
absl::StatusOr<std::string> KeepEarlierMetrics(const std::string& folder);

class RunLog {
 public:
  // Opens `folder`/metrics.jsonl for appending, without the lines that a resumed run repeats: of
  // steps beyond `from_step` and, with test_again, of its test.  The run's clock goes on from the
  // last step's line that stays.  Progress goes to stdout.
  // Errors: those of opening and rewriting the file; FailedPrecondition for a symbolic link.
  static absl::StatusOr<std::unique_ptr<RunLog>> Open(const std::string& folder, int64_t from_step,
                                                      bool test_again, int64_t total_steps,
                                                      int64_t batch);
  ~RunLog();

  // One training step: {"step", "loss", one key a metric, "learning_rate", "samples_per_second",
  // "epoch", "seconds"}, and of a dynamic loss scale {"loss_scale", "skipped_steps"}, as the step
  // leaves it.  epoch: passes over the data so far.  seconds: since the run began, without the time
  // between its end and a resumption.
  absl::Status Step(int64_t step, double epoch, const std::vector<Metric>& metrics,
                    double learning_rate, const std::optional<LossScaleState>& loss_scale);
  // A pass over the test set after `step` steps: {"step", "test_loss", "test_..."}.
  absl::Status Test(int64_t step, const std::vector<Metric>& metrics);
  // Numbers about the run so far, by name: {"step", ...}.
  absl::Status Numbers(int64_t step, const std::vector<std::pair<std::string, double>>& numbers);
  // Progress of a pass over the test set, on a terminal.
  void TestProgress(int64_t done, int64_t samples);
  // A plain line, above the progress line.
  void Line(const std::string& text);
  // Leaves the progress line as it is: what is printed next has a line of its own.
  void EndProgress();
  // Brings metrics.jsonl to the disk.  Errors: those of writing; NotFound if the file is not where
  // it was opened any more.
  absl::Status Sync();

 private:
  using Clock = std::chrono::steady_clock;
  RunLog() = default;
  absl::Status Write(const std::string& line);
  absl::Status CannotWrite() const;
  void Progress(int64_t step, const std::vector<Metric>& metrics);
  size_t Columns() const;

  std::FILE* file_ = nullptr;
  std::string path_;
  std::string terminal_;  // its path; "": the output is none
  bool progress_shown_ = false;
  int64_t first_step_ = 0, total_steps_ = 0, batch_ = 0;
  int64_t rate_step_ = 0;      // where the running rate was last taken
  double rate_ = 0;            // samples a second
  double seconds_before_ = 0;  // start_ in the run's time
  Clock::time_point start_, rate_time_, last_shown_;
};

}  // namespace gyre
