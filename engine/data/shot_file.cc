#include "engine/data/shot_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/data/array_file.h"
#include "engine/data/atomic_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

absl::Status Invalid(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

std::vector<double> Values(const HostArray& array) {
  std::vector<double> values;
  const auto append = [&]<typename T>(T) {
    for (size_t at = 0; at < array.bytes.size(); at += sizeof(T)) {
      T element;
      std::memcpy(&element, array.bytes.data() + at, sizeof(T));
      values.push_back(static_cast<double>(element));
    }
  };
  switch (array.dtype) {
    case DType::kU8:
      append(uint8_t{});
      break;
    case DType::kI32:
      append(int32_t{});
      break;
    case DType::kF32:
      append(float{});
      break;
    default:
      append(double{});
  }
  return values;
}

absl::StatusOr<Shot> ReadNpz(const std::string& path, const std::vector<std::string>& names,
                             size_t signals) {
  Shot shot{.file = path, .time = {}, .signals = {}};
  const auto read = [&](const std::string& name, int least_rank, int most_rank) {
    return ReadArray(
        {.path = path, .entry = name, .least_rank = least_rank, .most_rank = most_rank});
  };
  ASSIGN_OR_RETURN(const HostArray time, read("time", 1, 1));
  shot.time = Values(time);
  ASSIGN_OR_RETURN(const HostArray event, read("event", 0, 1));
  const std::vector<double> at = Values(event);
  if (at.size() != 1)
    return Invalid(path, absl::StrCat("event: expected one number, got ", at.size()));
  if (!std::isnan(at[0])) shot.event = at[0];
  for (size_t i = 0; i < names.size(); ++i) {
    const int rank = i < signals ? 1 : 2;
    ASSIGN_OR_RETURN(const HostArray array, read(names[i], rank, rank));
    const int64_t points = rank == 1 ? 1 : array.dims[1];
    if (array.dims[0] != time.dims[0] || points == 0) {
      return Invalid(path, absl::StrFormat("%s has extents [%s], but time has [%d]", names[i],
                                           absl::StrJoin(array.dims, ", "), time.dims[0]));
    }
    const std::vector<double> values = Values(array);
    shot.signals.push_back({points, {values.begin(), values.end()}});
  }
  return shot;
}

// Lines of a file, one after another, without what ends them.
class Lines {
 public:
  Lines(std::string path, std::string_view text) : path_(std::move(path)), rest_(text) {}
  bool Next() {
    if (rest_.empty()) return false;
    line_ = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(rest_.size(), line_.size() + 1));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++number_;
    return true;
  }
  std::string line() const { return std::string(line_); }
  absl::Status Error(const std::string& what) const {
    return Invalid(absl::StrCat(path_, ":", number_), what);
  }

 private:
  const std::string path_;
  std::string_view line_, rest_;
  int64_t number_ = 0;
};

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells = absl::StrSplit(line, ',');
  for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
  return cells;
}

// Text of a file as a message can show it.
std::string Shown(const std::string& text) {
  constexpr size_t kMost = 60;
  const std::string escaped = absl::CEscape(text.substr(0, kMost));
  return absl::StrCat("\"", escaped, "\"", text.size() > kMost ? "..." : "");
}

// Which columns hold the signal, or the points of the profile.
std::vector<size_t> ColumnsOf(const std::vector<std::string>& header, const std::string& name,
                              bool profile) {
  std::vector<size_t> columns;
  while (true) {
    const std::string column = profile ? absl::StrCat(name, "[", columns.size(), "]") : name;
    const auto found = std::ranges::find(header, column);
    if (found == header.end()) return columns;
    columns.push_back(static_cast<size_t>(found - header.begin()));
    if (!profile) return columns;
  }
}

absl::StatusOr<Shot> ReadCsv(const std::string& path, const std::vector<std::string>& names,
                             size_t signals) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Shot shot{.file = path, .time = {}, .signals = {}};
  Lines lines(path, text);
  bool more = lines.Next();
  constexpr std::string_view kEvent = "# event";
  if (more && lines.line().starts_with(kEvent)) {
    if (!absl::SimpleAtod(lines.line().substr(kEvent.size()), &shot.event) ||
        !std::isfinite(shot.event)) {
      return lines.Error("expected \"# event\" and a time");
    }
    more = lines.Next();
  }
  if (!more) return Invalid(path, "expected a line of names, time,..., and a line a time");
  const std::vector<std::string> header = Cells(lines.line());
  std::vector<std::vector<size_t>> columns;
  const auto find = [&](const std::string& name, bool profile) {
    columns.push_back(ColumnsOf(header, name, profile));
    if (columns.back().empty()) {
      return lines.Error(absl::StrFormat("no column \"%s%s\" among %s", name, profile ? "[0]" : "",
                                         Shown(lines.line())));
    }
    for (const size_t column : columns.back()) {
      if (std::ranges::count(header, header[column]) == 1) continue;
      return lines.Error(absl::StrFormat("two columns \"%s\"", header[column]));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(find("time", false));
  for (size_t i = 0; i < names.size(); ++i) {
    RETURN_IF_ERROR(find(names[i], i >= signals));
    shot.signals.push_back({static_cast<int64_t>(columns.back().size()), {}});
  }
  while (lines.Next()) {
    const std::vector<std::string> cells = Cells(lines.line());
    if (cells.size() != header.size()) {
      return lines.Error(
          absl::StrFormat("%d columns, but the names are %d", cells.size(), header.size()));
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      for (const size_t column : columns[i]) {
        double value;
        if (!absl::SimpleAtod(cells[column], &value)) {
          return lines.Error(absl::StrFormat("%s: expected a number, got %s", header[column],
                                             Shown(cells[column])));
        }
        if (i == 0) shot.time.push_back(value);
        if (i > 0) shot.signals[i - 1].values.push_back(static_cast<float>(value));
      }
    }
  }
  return shot;
}

}  // namespace

absl::StatusOr<Shot> ReadShot(const std::string& path, const std::vector<std::string>& signals,
                              const std::vector<std::string>& profiles) {
  std::vector<std::string> names = signals;
  names.insert(names.end(), profiles.begin(), profiles.end());
  ASSIGN_OR_RETURN(Shot shot, path.ends_with(".csv") ? ReadCsv(path, names, signals.size())
                                                     : ReadNpz(path, names, signals.size()));
  for (size_t t = 0; t < shot.time.size(); ++t) {
    const bool increases = t == 0 || shot.time[t] > shot.time[t - 1];
    if (std::isfinite(shot.time[t]) && increases) continue;
    return Invalid(path, absl::StrFormat("time %d (the first is 0) is %g; times are finite and "
                                         "increase",
                                         t, shot.time[t]));
  }
  const auto times =
      static_cast<size_t>(std::ranges::upper_bound(shot.time, shot.event) - shot.time.begin());
  if (times == 0) {
    return Invalid(path, shot.time.empty()
                             ? std::string("no times")
                             : absl::StrFormat("no time up to its event at %g", shot.event));
  }
  shot.time.resize(times);
  for (size_t i = 0; i < names.size(); ++i) {
    ShotSignal& signal = shot.signals[i];
    const auto points = static_cast<size_t>(signal.points);
    signal.values.resize(times * points);
    const auto bad = std::ranges::find_if(signal.values, [](float x) { return !std::isfinite(x); });
    if (bad == signal.values.end()) continue;
    const size_t t = static_cast<size_t>(bad - signal.values.begin()) / points;
    return Invalid(path, absl::StrFormat("%s holds %g at time %g", names[i], *bad, shot.time[t]));
  }
  return shot;
}

}  // namespace gyre
