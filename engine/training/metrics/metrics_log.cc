#include "engine/training/metrics/metrics_log.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "engine/data/files/atomic_file.h"

namespace gyre {
namespace {

// A terminal is redrawn this often; a log gets a line this often.
constexpr std::chrono::milliseconds kTerminalInterval(200);
constexpr std::chrono::seconds kLogInterval(10);
constexpr double kRateInterval = 0.5;  // seconds over which samples a second are counted

constexpr size_t kUsualColumns = 80;
// In a log a line may be as long as it is.
constexpr size_t kNoBound = ~size_t{0};

// mpirun gives its ranks a terminal of its own making, so under it the question is where mpirun's
// output goes.
std::string Terminal() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) {
    return isatty(STDOUT_FILENO) != 0 ? "/proc/self/fd/1" : "";
  }
  std::error_code error;
  const std::string target =
      std::filesystem::read_symlink(absl::StrCat("/proc/", getppid(), "/fd/1"), error).string();
  const bool terminal =
      absl::StartsWith(target, "/dev/pts/") || absl::StartsWith(target, "/dev/tty");
  return terminal ? target : "";
}

// A line that wraps cannot be written over.  One less than there are: a cursor behind the last one
// may be in the next line already.
size_t ColumnsOf(const std::string& terminal) {
  winsize size = {};
  const int fd = open(terminal.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) {
    if (ioctl(fd, TIOCGWINSZ, &size) != 0) size.ws_col = 0;
    close(fd);
  }
  return (size.ws_col > 1 ? size.ws_col : kUsualColumns) - 1;
}

// Not of a step, its norms, or a whole run's paging.
bool OfTest(const nlohmann::json& line) {
  return !line.contains("learning_rate") && !line.contains("norms") &&
         !line.contains("fetched_bytes");
}

// Keeps the lines of metrics.jsonl up to a step, with or without that of its test.  Returns the
// "seconds" of the last step among them; 0: none states any.
absl::StatusOr<double> DropLaterSteps(const std::string& path, int64_t step, bool keep_test) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return 0;
  RETURN_IF_ERROR(text.status());
  std::string kept;
  double seconds = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step")) continue;  // a line cut short
    if (!json["step"].is_number_integer()) continue;
    const int64_t of = json["step"].get<int64_t>();
    if (of > step || (of == step && !keep_test && OfTest(json))) continue;
    absl::StrAppend(&kept, line, "\n");
    if (json.contains("learning_rate") && json.contains("seconds") && json["seconds"].is_number()) {
      seconds = json["seconds"].get<double>();
    }
  }
  RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  return seconds;
}

}  // namespace

std::string ProgressText(int64_t step, int64_t steps, const std::vector<std::string>& metrics,
                         double samples_per_second, double seconds_left, size_t columns) {
  std::string text = absl::StrFormat("step %d/%d", step, steps), rest;
  const auto seconds = static_cast<int64_t>(seconds_left + 0.5);
  // The first metric, which is the loss, matters most.
  const size_t least = text.size() + (metrics.empty() ? 0 : 2 + metrics.front().size());
  for (const std::string& part :
       {samples_per_second < 10 ? absl::StrFormat("  %.2g samples/s", samples_per_second)
                                : absl::StrFormat("  %.0f samples/s", samples_per_second),
        absl::StrCat("  ETA ",
                     seconds == 0 ? "0s" : absl::FormatDuration(absl::Seconds(seconds)))}) {
    if (least + rest.size() + part.size() > columns) break;
    rest += part;
  }
  for (const std::string& metric : metrics) {
    if (text.size() + 2 + metric.size() + rest.size() > columns) break;
    absl::StrAppend(&text, "  ", metric);
  }
  return absl::StrCat(text, rest).substr(0, columns);
}

std::string TestText(int64_t step, int64_t steps, const std::vector<std::string>& metrics,
                     size_t columns) {
  std::string text = absl::StrFormat("step %d/%d", step, steps);
  size_t used = text.size();
  for (const std::string& metric : metrics) {
    if (used + 2 + metric.size() > columns) {
      text += "\n";
      used = 0;
    }
    absl::StrAppend(&text, "  ", metric);
    used += 2 + metric.size();
  }
  return text;
}

absl::StatusOr<std::string> KeepEarlierMetrics(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/metrics.jsonl");
  std::string kept;
  struct stat there;
  for (int n = 1; kept.empty() || lstat(kept.c_str(), &there) == 0; ++n) {
    kept = absl::StrCat(folder, "/metrics.", n, ".jsonl");
  }
  if (std::rename(path.c_str(), kept.c_str()) == 0) return kept;
  if (errno == ENOENT) return "";
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", path));
}

absl::StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& folder,
                                                             int64_t from_step, bool test_again,
                                                             int64_t total_steps, int64_t batch) {
  std::unique_ptr<MetricsLog> log(new MetricsLog);
  log->path_ = absl::StrCat(folder, "/metrics.jsonl");
  std::error_code ignored;
  if (std::filesystem::is_symlink(log->path_, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat(log->path_, ": is a symbolic link, which is not followed; remove it"));
  }
  ASSIGN_OR_RETURN(log->seconds_before_,
                   DropLaterSteps(log->path_, from_step, /*keep_test=*/!test_again));
  const int fd =
      open(log->path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0 || (log->file_ = fdopen(fd, "a")) == nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat(log->path_, ": cannot open: ", std::strerror(errno)));
  }
  log->terminal_ = Terminal();
  log->first_step_ = log->rate_step_ = from_step;
  log->total_steps_ = total_steps;
  log->batch_ = batch;
  log->start_ = log->rate_time_ = log->last_shown_ = Clock::now();
  return log;
}

MetricsLog::~MetricsLog() {
  if (file_ != nullptr) std::fclose(file_);
}

// Each line is handed to the system at once, for whoever follows the file.  A full disk leaves none
// cut short.
absl::Status MetricsLog::Write(const std::string& line) {
  struct stat before;
  if (fstat(fileno(file_), &before) != 0) return CannotWrite();
  if (std::fputs(line.c_str(), file_) >= 0 && std::fputc('\n', file_) != EOF &&
      std::fflush(file_) == 0) {
    return absl::OkStatus();
  }
  const absl::Status status = CannotWrite();
  __fpurge(file_);  // what closing would write
  std::ignore = ftruncate(fileno(file_), before.st_size);
  return status;
}

absl::Status MetricsLog::Sync() {
  struct stat open, there;
  if (fsync(fileno(file_)) != 0 || fstat(fileno(file_), &open) != 0) return CannotWrite();
  if (lstat(path_.c_str(), &there) != 0 || there.st_dev != open.st_dev ||
      there.st_ino != open.st_ino) {
    return absl::NotFoundError(
        absl::StrCat(path_, " was removed or replaced while training; its lines are lost"));
  }
  return absl::OkStatus();
}

absl::Status MetricsLog::CannotWrite() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path_, ": ", std::strerror(errno)));
}

absl::Status MetricsLog::Step(int64_t step, double epoch, const std::vector<Metric>& metrics,
                              double learning_rate, const std::optional<LossScaleState>& loss_scale,
                              const NamedNumbers& more) {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - rate_time_).count();
  const bool first = rate_step_ == first_step_;  // its rate is of the steps so far
  if (elapsed >= kRateInterval || first) {
    rate_ = static_cast<double>((step - rate_step_) * batch_) / elapsed;
  }
  if (elapsed >= kRateInterval) {
    rate_step_ = step;
    rate_time_ = now;
  }
  nlohmann::ordered_json json = {{"step", step}};
  for (const auto& [name, value] : NamedValues(metrics)) json.emplace(name, value);
  json["learning_rate"] = learning_rate;
  if (loss_scale) {
    json["loss_scale"] = loss_scale->scale;
    json["skipped_steps"] = loss_scale->skipped;
  }
  json["samples_per_second"] = std::round(rate_ * 1000) / 1000;
  json["epoch"] = epoch;
  const double seconds = seconds_before_ + std::chrono::duration<double>(now - start_).count();
  json["seconds"] = std::round(seconds * 1000) / 1000;
  for (const auto& [name, number] : more) json.emplace(name, number);
  RETURN_IF_ERROR(Write(json.dump()));
  if (now - last_shown_ >=
          (terminal_.empty() ? Clock::duration(kLogInterval) : kTerminalInterval) ||
      step == total_steps_) {
    Progress(step, metrics);
    last_shown_ = now;
  }
  return absl::OkStatus();
}

size_t MetricsLog::Columns() const { return terminal_.empty() ? kNoBound : ColumnsOf(terminal_); }

void MetricsLog::Progress(int64_t step, const std::vector<Metric>& metrics) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const double left =
      elapsed * static_cast<double>(total_steps_ - step) / static_cast<double>(step - first_step_);
  const std::string text =
      ProgressText(step, total_steps_, FormatMetrics(metrics, ""), rate_, left, Columns());
  if (terminal_.empty()) return Line(text);
  std::printf("\r\033[K%s", text.c_str());
  std::fflush(stdout);
  progress_shown_ = true;
}

absl::Status MetricsLog::Test(int64_t step, const std::vector<Metric>& metrics) {
  if (metrics.empty()) return absl::OkStatus();  // the net has nothing to say in the test phase
  NamedNumbers numbers = NamedValues(metrics);
  for (auto& [name, value] : numbers) name.insert(0, "test_");
  RETURN_IF_ERROR(Numbers(step, numbers));
  Line(TestText(step, total_steps_, FormatMetrics(metrics, "test "), Columns()));
  return absl::OkStatus();
}

absl::Status MetricsLog::Numbers(int64_t step, const NamedNumbers& numbers) {
  nlohmann::ordered_json json = {{"step", step}};
  for (const auto& [name, number] : numbers) json.emplace(name, number);
  return Write(json.dump());
}

absl::Status MetricsLog::Norms(int64_t step, const std::map<std::string, LoggedNorms>& norms) {
  nlohmann::ordered_json json = {{"step", step}};
  for (const auto& [name, of] : norms) {
    nlohmann::ordered_json& object = json["norms"][name];
    object["value"] = of.value;
    if (of.gradient) object["gradient"] = *of.gradient;
    object["change"] = of.change;
  }
  return Write(json.dump());
}

void MetricsLog::TestProgress(int64_t done, int64_t samples) {
  if (terminal_.empty() || Clock::now() - last_shown_ < kTerminalInterval) return;
  last_shown_ = Clock::now();
  std::printf("\r\033[Ktesting %d%%", static_cast<int>(100 * done / samples));
  std::fflush(stdout);
  progress_shown_ = true;
}

void MetricsLog::EndProgress() {
  if (!std::exchange(progress_shown_, false)) return;
  std::printf("\n");
  std::fflush(stdout);
}

void MetricsLog::Line(const std::string& text) {
  if (progress_shown_) std::printf("\r\033[K");
  progress_shown_ = false;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace gyre
