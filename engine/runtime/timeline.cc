#include "engine/runtime/timeline.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/nvtx.h"

namespace gyre {
namespace {

constexpr const char* kKinds[] = {"compute", "communication", "waiting", "input"};

// Of the process; never destroyed, because threads may end later than main.
struct Recording {
  std::mutex mutex;  // of all below
  std::FILE* file = nullptr;
  std::string path;
  int rows = 0;
  int64_t spans = 0, most_spans = 0;
};
Recording& TheRecording() {
  static Recording* const recording = new Recording;
  return *recording;
}

thread_local TimelineRow current_row;
thread_local const std::string* current_label = nullptr;

std::string Quoted(std::string_view text) { return nlohmann::json(text).dump(); }

// Chrome's and Perfetto's array of events; they do without its end, where a run breaks off.
void WriteName(Recording& recording, const char* what, TimelineRow row, std::string_view name) {
  absl::FPrintF(recording.file, R"(,%s{"name":"%s","ph":"M","pid":%d,"tid":%d,"args":{"name":%s}})",
                "\n", what, row.rank, row.number, Quoted(name));
}

}  // namespace

std::atomic<bool> Timeline::on_ = false;

absl::Status Timeline::Open(const std::string& path, int64_t most_spans) {
  Recording& recording = TheRecording();
  std::lock_guard lock(recording.mutex);
  recording.file = std::fopen(path.c_str(), "we");
  if (recording.file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--timeline: ", path));
  }
  recording.path = path;
  recording.rows = 0;
  recording.spans = 0;
  recording.most_spans = most_spans;
  std::fputs("[{}", recording.file);
  on_ = true;
  return absl::OkStatus();
}

absl::Status Timeline::Close() {
  Recording& recording = TheRecording();
  std::lock_guard lock(recording.mutex);
  if (!on_.exchange(false)) return absl::OkStatus();
  if (recording.spans > recording.most_spans) {
    absl::FPrintF(recording.file,
                  ",\n"
                  R"({"name":"the %d spans that followed are left out","ph":"i","s":"g",)"
                  R"("ts":%.3f,"pid":0,"tid":0})",
                  recording.spans - recording.most_spans, Now());
  }
  std::fputs("]\n", recording.file);
  const bool failed = std::ferror(recording.file) != 0;
  if (std::fclose(recording.file) == 0 && !failed) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("--timeline: ", recording.path,
                                          ": it could not be written whole; is its disk full?"));
}

TimelineRow Timeline::NewRow(int rank, std::string_view name) {
  if (!on() || rank < 0) return {};
  Recording& recording = TheRecording();
  std::lock_guard lock(recording.mutex);
  if (!on()) return {};
  const TimelineRow row{rank, ++recording.rows};
  WriteName(recording, "process_name", row, absl::StrCat("rank ", rank));
  WriteName(recording, "thread_name", row, name);
  return row;
}

double Timeline::Now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Timeline::Add(TimelineRow row, TimelineKind kind, std::string_view name, double begin,
                   double end) {
  if (row.rank < 0) return;
  Recording& recording = TheRecording();
  std::lock_guard lock(recording.mutex);
  if (!on() || ++recording.spans > recording.most_spans) return;
  absl::FPrintF(recording.file,
                ",\n"
                R"({"name":%s,"cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":%d,"tid":%d})",
                Quoted(name), kKinds[static_cast<int>(kind)], begin, end - begin, row.rank,
                row.number);
}

TimelineRow Timeline::row() { return current_row; }
void Timeline::SetRow(TimelineRow row) { current_row = row; }

std::function<absl::Status()> Timeline::Labelled(std::function<absl::Status()> work) {
  if (!on() || current_label == nullptr) return work;
  return [work = std::move(work), label = *current_label] {
    const TimelineSpan span(TimelineKind::kCompute, label);
    return work();
  };
}

TimelineLabel::TimelineLabel(std::string_view what, std::string_view how) {
  if (!Timeline::on()) return;
  name_ = std::string(what);
  if (!how.empty()) name_.append(" ").append(how);
  outer_ = std::exchange(current_label, &name_);
  PushNvtxRange(name_.c_str());
}

TimelineLabel::~TimelineLabel() {
  if (name_.empty()) return;
  current_label = outer_;
  PopNvtxRange();
}

}  // namespace gyre
