#include "engine/data/sets/shot_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/data/tensors/array_file.h"
#include "engine/data/tensors/csv_reader.h"
#include "engine/runtime/check.h"
#include "models/schema/describe.h"

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

// Of times: an F32 is the decimal, of fewest digits, that it was made of.
std::vector<double> Times(const HostArray& array) {
  std::vector<double> times = Values(array);
  if (array.dtype != DType::kF32) return times;
  for (double& time : times) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<float>(time)).ptr;
    std::from_chars(digits, end, time);
  }
  return times;
}

absl::StatusOr<Shot> ReadNpz(const std::string& path, const std::vector<std::string>& names,
                             size_t signals) {
  Shot shot{.file = path, .time = {}, .signals = {}};
  const auto read = [&](const std::string& name, int least_rank, int most_rank) {
    return ReadArray(
        {.path = path, .entry = name, .least_rank = least_rank, .most_rank = most_rank});
  };
  ASSIGN_OR_RETURN(const HostArray time, read("time", 1, 1));
  shot.time = Times(time);
  ASSIGN_OR_RETURN(const HostArray event, read("event", 0, 1));
  const std::vector<double> at = Times(event);
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

// The columns of a .csv by their names, which `reader` has just read.
class Header {
 public:
  explicit Header(const CsvReader& reader) : reader_(reader) {
    for (size_t i = 0; i < reader.size(); ++i) {
      names_.emplace_back(reader.cell(i));
      columns_[names_[i]].push_back(i);
    }
  }

  const std::vector<std::string>& names() const { return names_; }

  // That which holds the signal, or those of the points of the profile.
  absl::StatusOr<std::vector<size_t>> Find(const std::string& signal, bool profile) const {
    std::vector<size_t> found;
    while (profile || found.empty()) {
      const std::string name = profile ? absl::StrCat(signal, "[", found.size(), "]") : signal;
      const auto columns = columns_.find(name);
      if (columns == columns_.end()) break;
      if (columns->second.size() > 1) {
        return reader_.Error(absl::StrFormat("two columns \"%s\"", name));
      }
      found.push_back(columns->second[0]);
    }
    if (found.empty()) {
      const std::string line = absl::StrJoin(names_, ",");
      const bool semicolons = absl::StrContains(line, ';');
      return reader_.Error(absl::StrFormat("no column \"%s%s\" among %s%s", signal,
                                           profile ? "[0]" : "", Shown(line),
                                           semicolons ? "; commas separate columns" : ""));
    }
    if (profile) RETURN_IF_ERROR(CheckNoOthers(signal, found));
    return found;
  }

 private:
  // A point beyond a gap would be left out.
  absl::Status CheckNoOthers(const std::string& profile, const std::vector<size_t>& found) const {
    const std::set<size_t> points(found.begin(), found.end());
    const std::string begin = absl::StrCat(profile, "[");
    for (auto name = columns_.lower_bound(begin);
         name != columns_.end() && name->first.starts_with(begin); ++name) {
      if (points.contains(name->second[0])) continue;
      return reader_.Error(absl::StrFormat("a column \"%s\", but none \"%s[%d]\"", name->first,
                                           profile, found.size()));
    }
    return absl::OkStatus();
  }

  const CsvReader& reader_;
  std::vector<std::string> names_;
  std::map<std::string, std::vector<size_t>> columns_;
};

// Reads the comments ahead of the names.  "# event 0.85" is one that counts.
absl::Status ReadComments(CsvReader& reader, double* event) {
  bool any = false;
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<std::string> text, reader.ReadComment('#'));
    if (!text) return absl::OkStatus();
    absl::AsciiStrToLower(&*text);
    absl::string_view comment = *text;
    comment = absl::StripLeadingAsciiWhitespace(comment.substr(1));
    if (!absl::ConsumePrefix(&comment, "event")) continue;
    if (any) return reader.Error("a second event");
    if (!absl::SimpleAtod(comment, event) || !std::isfinite(*event)) {
      return reader.Error(
          absl::StrCat("expected \"# event\" and a time",
                       PointAdvice(std::string(absl::StripAsciiWhitespace(comment)))));
    }
    any = true;
  }
}

absl::StatusOr<Shot> ReadCsv(const std::string& path, const std::vector<std::string>& names,
                             size_t signals) {
  ASSIGN_OR_RETURN(const auto reader, CsvReader::Open(path));
  Shot shot{.file = path, .time = {}, .signals = {}};
  RETURN_IF_ERROR(ReadComments(*reader, &shot.event));
  ASSIGN_OR_RETURN(const bool named, reader->Next());
  if (!named) return Invalid(path, "expected a line of names, time,..., and a line a time");
  const Header header(*reader);
  std::vector<std::vector<size_t>> columns;
  ASSIGN_OR_RETURN(columns.emplace_back(), header.Find("time", false));
  for (size_t i = 0; i < names.size(); ++i) {
    ASSIGN_OR_RETURN(columns.emplace_back(), header.Find(names[i], i >= signals));
    shot.signals.push_back({static_cast<int64_t>(columns.back().size()), {}});
  }
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, reader->Next());
    if (!more) return shot;
    if (reader->size() != header.names().size()) {
      return reader->Error(absl::StrFormat(
          "%d columns, but the names are %d%s", reader->size(), header.names().size(),
          reader->size() > header.names().size() ? "; a decimal has a point, not a comma" : ""));
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      for (const size_t column : columns[i]) {
        const std::string_view cell = reader->cell(column);
        double value;
        if (!absl::SimpleAtod({cell.data(), cell.size()}, &value)) {
          return reader->Error(absl::StrFormat("%s: expected a number, got %s%s",
                                               header.names()[column], Shown(cell),
                                               PointAdvice(cell)));
        }
        if (i == 0) shot.time.push_back(value);
        if (i > 0) shot.signals[i - 1].values.push_back(static_cast<float>(value));
      }
    }
  }
}

}  // namespace

absl::StatusOr<Shot> ReadShot(const std::string& path, const std::vector<std::string>& signals,
                              const std::vector<std::string>& profiles) {
  std::vector<std::string> names = signals;
  names.insert(names.end(), profiles.begin(), profiles.end());
  ASSIGN_OR_RETURN(Shot shot, absl::EndsWithIgnoreCase(path, ".csv")
                                  ? ReadCsv(path, names, signals.size())
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
