#include "engine/data/sets/tables/table_windows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/sets/series.h"
#include "engine/data/tensors/csv_reader.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The rows of each series, in order of time.
absl::StatusOr<std::vector<std::vector<int64_t>>> SeriesOf(const TableRows& rows,
                                                           const std::string& file) {
  std::vector<std::vector<int64_t>> series;
  for (size_t row = 0; row < rows.groups.size(); ++row) {
    const auto group = static_cast<size_t>(rows.groups[row]);
    if (series.size() <= group) series.resize(group + 1);
    series[group].push_back(static_cast<int64_t>(row));
  }
  for (size_t group = 0; group < series.size(); ++group) {
    const auto time = [&](int64_t row) { return rows.times[static_cast<size_t>(row)]; };
    std::ranges::stable_sort(series[group], {}, time);
    const auto same = std::ranges::adjacent_find(series[group], {}, time);
    if (same == series[group].end()) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: rows %d and %d (the first is 0)%s have one time; expected an order", file, same[0],
        same[1],
        rows.group_names.empty() ? ""
                                 : absl::StrCat(" of group ", Shown(rows.group_names[group]))));
  }
  return series;
}

// Cuts series into samples of `window` rows.  The last sample is the blank one.
class Windows {
 public:
  Windows(std::vector<std::vector<int64_t>> series, int64_t window)
      : series_(std::move(series)), window_(window) {
    for (const std::vector<int64_t>& rows : series_) {
      samples_.push_back((static_cast<int64_t>(rows.size()) + window - 1) / window);
    }
    stored_ = std::accumulate(samples_.begin(), samples_.end(), int64_t{1});
  }
  const std::vector<int64_t>& samples() const { return samples_; }  // of each series
  int64_t window() const { return window_; }
  int64_t stored() const { return stored_; }
  // Samples that a series ends within.
  int64_t partial() const {
    return std::ranges::count_if(series_, [this](const std::vector<int64_t>& rows) {
      return static_cast<int64_t>(rows.size()) % window_ != 0;
    });
  }

  // [samples, window, ...] of [rows, ...], or [samples, ...] of each window's last row.
  HostArray Cut(const RowArray& array, bool last_row) const {
    const HostArray& rows = array.rows;
    const auto element = static_cast<int64_t>(rows.bytes.size()) / rows.dims[0];  // bytes
    HostArray cut{.dtype = rows.dtype, .dims = {stored_}, .bytes = {}};
    if (!last_row) cut.dims.push_back(window_);
    cut.dims.insert(cut.dims.end(), rows.dims.begin() + 1, rows.dims.end());
    // Labels beyond a series' end are ignored: -1 has all bits set.
    const char padding = array.is_label && rows.dtype == DType::kI32 ? '\xff' : '\0';
    static_assert(kIgnored == -1);
    cut.bytes.assign(static_cast<size_t>(stored_ * (last_row ? 1 : window_) * element), padding);
    Visit([&](int64_t sample, int64_t step, int64_t row) {
      const int64_t to = last_row ? sample : sample * window_ + step;
      std::memcpy(cut.bytes.data() + to * element, rows.bytes.data() + row * element,
                  static_cast<size_t>(element));
    });
    return cut;
  }

  // [samples, window], 1 where a series begins.
  HostArray Resets() const {
    HostArray resets = NewArray<int32_t>(stored_, {window_});
    int64_t sample = 0;
    for (const int64_t samples : samples_) {
      ElementsOf<int32_t>(resets)[sample * window_] = 1;
      sample += samples;
    }
    return resets;
  }

  // [samples], rows of the series in each.
  HostArray Lengths() const {
    HostArray lengths = NewArray<int32_t>(stored_, {});
    Visit([&](int64_t sample, int64_t, int64_t) { ++ElementsOf<int32_t>(lengths)[sample]; });
    return lengths;
  }

  // How many begin in each file, if they are in the order of the files.  Else {}.
  std::vector<int64_t> SamplesOf(std::span<const int64_t> rows_of_files) const {
    std::vector<int64_t> ends(rows_of_files.begin(), rows_of_files.end()), samples(ends.size());
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    size_t before = 0;
    bool sorted = true;
    Visit([&](int64_t, int64_t step, int64_t row) {
      if (step > 0) return;
      const auto file = static_cast<size_t>(std::ranges::upper_bound(ends, row) - ends.begin());
      sorted = sorted && file >= before;
      before = file;
      ++samples[file];
    });
    return sorted ? samples : std::vector<int64_t>();
  }

 private:
  // Calls `place` for each row, in order.
  template <typename Place>
  void Visit(const Place& place) const {
    int64_t first = 0;
    for (size_t s = 0; s < series_.size(); ++s) {
      for (size_t i = 0; i < series_[s].size(); ++i) {
        const auto step = static_cast<int64_t>(i);
        place(first + step / window_, step % window_, series_[s][i]);
      }
      first += samples_[s];
    }
  }

  const std::vector<std::vector<int64_t>> series_;
  const int64_t window_;
  std::vector<int64_t> samples_;
  int64_t stored_ = 0;
};

// The weight of each window: that of its last row, or 1.  A window that goes on beyond its series
// weighs 0 if it has a number for a label there, which nothing else marks as no label.
HostArray WeightsOf(const Windows& windows, const RowArray* of_rows, bool whole) {
  HostArray weights =
      of_rows != nullptr ? windows.Cut(*of_rows, true) : NewArray<double>(windows.stored(), {});
  HostArray lengths = windows.Lengths();
  for (int64_t i = 0; i + 1 < windows.stored(); ++i) {
    double& weight = ElementsOf<double>(weights)[i];
    if (of_rows == nullptr) weight = 1;
    if (whole && ElementsOf<int32_t>(lengths)[i] < windows.window()) weight = 0;
  }
  return weights;
}

}  // namespace

absl::Status AddWindows(TableRows& rows, const TableUse& use, MemoryDataset& dataset) {
  const auto& [config, files, train, label_of_window, weight_input] = use;
  const std::string& file = files[0];  // for messages
  ASSIGN_OR_RETURN(auto series, SeriesOf(rows, file));
  size_t longest = 0;
  for (const std::vector<int64_t>& one : series) longest = std::max(longest, one.size());
  if (train && static_cast<int64_t>(longest) < config.window()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: window: %d is longer than every series; the longest has %d rows; "
                        "write window: %d",
                        file, config.window(), longest, longest));
  }
  const Windows windows(std::move(series), config.window());
  uint64_t bytes = 0;
  for (const RowArray& array : rows.arrays) bytes += array.rows.bytes.size();
  const double sample_bytes = static_cast<double>(bytes) / static_cast<double>(rows.groups.size()) *
                              static_cast<double>(config.window());
  RETURN_IF_ERROR(CheckFitsMemory(
      file, static_cast<uint64_t>(sample_bytes * static_cast<double>(windows.stored()))));
  const RowArray* weights = nullptr;
  bool whole = false, is_fed = weight_input.empty();
  for (RowArray& array : rows.arrays) {
    if (array.is_weight) {
      weights = &array;
      continue;
    }
    is_fed = is_fed || array.input == weight_input;  // by a column of this name
    whole = whole || (array.is_label && !label_of_window && array.rows.dtype == DType::kF64);
    RETURN_IF_ERROR(
        dataset.Add(array.input, file, windows.Cut(array, array.is_label && label_of_window)));
    array.rows = {};
  }
  if (!is_fed) {
    RETURN_IF_ERROR(dataset.Add(weight_input, file, WeightsOf(windows, weights, whole)));
  }
  if (const int64_t partial = windows.partial(); whole && partial > 0) {
    dataset.AddNote(absl::StrFormat(
        "%d of %d windows go on beyond their series, where labels are 0; %s", partial,
        windows.stored() - 1,
        weight_input.empty() ? "these count, unless the net has an input for weights and the loss "
                               "takes it as its third"
                             : "such a window has weight 0"));
  }
  RETURN_IF_ERROR(dataset.Add("reset", file, windows.Resets(), /*reset=*/true));
  RETURN_IF_ERROR(dataset.Add("length", file, windows.Lengths()));
  if (auto samples = windows.SamplesOf(rows.rows_of_files); !samples.empty()) {
    dataset.SetFiles(files, std::move(samples));
  }
  std::vector<int64_t> groups;
  for (size_t s = 0; s < windows.samples().size(); ++s) {
    groups.insert(groups.end(), static_cast<size_t>(windows.samples()[s]), static_cast<int64_t>(s));
  }
  dataset.SetGroups(std::move(groups));
  dataset.SetSequences(windows.samples());
  return absl::OkStatus();
}

}  // namespace gyre
