// metrics_log.h: the output of a run.  Programs read metrics.jsonl.  People see progress with rate
// and ETA, as a line that rewrites itself on a terminal, or as plain lines.  Only rank 0 has a log.
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/training/metrics/metrics.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// Progress of a step as a line of at most `columns`, with as many metrics as fit.
std::string ProgressText(int64_t step, int64_t steps, const std::vector<std::string>& metrics,
                         double samples_per_second, double seconds_left, size_t columns);

// A test's line, or lines of at most `columns`.  The first begins with the step.
std::string TestText(int64_t step, int64_t steps, const std::vector<std::string>& metrics,
                     size_t columns);

// Renames an earlier run's `folder`/metrics.jsonl to metrics.1.jsonl or the next free name, and
// returns its path, or "".
absl::StatusOr<std::string> KeepEarlierMetrics(const std::string& folder);

// L2 norms of a parameter, its gradient, if it has one, and its last change.
struct LoggedNorms {
  double value = 0;
  std::optional<double> gradient = {};
  double change = 0;
};

class MetricsLog {
 public:
  // Opens `folder`/metrics.jsonl for appending.  First removes lines that a resumed run repeats, of
  // steps beyond `from_step` and, with test_again, of its test.  The run's clock continues from the
  // last remaining step's line.  Progress is printed to stdout.
  // Errors: those of opening and rewriting the file, and FailedPrecondition for a symbolic link.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& folder,
                                                          int64_t from_step, bool test_again,
                                                          int64_t total_steps, int64_t batch);
  ~MetricsLog();

  // Writes a line for a training step, with a dynamic loss scale as the step leaves it.
  //   {"step", "loss", one key a metric, "learning_rate", "samples_per_second", "epoch", "seconds"}
  //   {"loss_scale", "skipped_steps"}, added with a dynamic loss scale
  //   `more`, named numbers about the step
  // `epoch` counts passes over the data.  "seconds" is the run's time, without the time between its
  // end and a resumption.
  absl::Status Step(int64_t step, double epoch, const std::vector<Metric>& metrics,
                    double learning_rate, const std::optional<LossScaleState>& loss_scale,
                    const NamedNumbers& more = {});
  // Writes {"step", "test_loss", "test_..."} for a test after `step` steps.
  absl::Status Test(int64_t step, const std::vector<Metric>& metrics);
  // Writes {"step", ...} with named numbers about the run so far.
  absl::Status Numbers(int64_t step, const NamedNumbers& numbers);
  // Writes {"step", "norms": {NAME: {"value", "gradient", "change"}, ...}}.
  absl::Status Norms(int64_t step, const std::map<std::string, LoggedNorms>& norms);
  // On a terminal only.
  void TestProgress(int64_t done, int64_t samples);
  // A plain line, above the progress line.
  void Line(const std::string& text);
  // Ends the progress line, so that later output has a line of its own.
  void EndProgress();
  // Syncs metrics.jsonl to the disk.  Errors: those of writing, and NotFound if the file has moved.
  absl::Status Sync();

 private:
  using Clock = std::chrono::steady_clock;
  MetricsLog() = default;
  absl::Status Write(const std::string& line);
  absl::Status CannotWrite() const;
  void Progress(int64_t step, const std::vector<Metric>& metrics);
  size_t Columns() const;

  std::FILE* file_ = nullptr;
  std::string path_;
  std::string terminal_;  // its path; "": output is not a terminal
  bool progress_shown_ = false;
  int64_t first_step_ = 0, total_steps_ = 0, batch_ = 0;
  int64_t rate_step_ = 0;      // step of the last rate
  double rate_ = 0;            // samples a second
  double seconds_before_ = 0;  // the run's time at start_
  Clock::time_point start_, rate_time_, last_shown_;
};

}  // namespace gyre
