// Rows of CSV files: a sample each, or series of them in samples of equal length.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/table_fit.h"
#include "engine/data/sets/table_reader.h"
#include "engine/data/sets/table_rows.h"
#include "engine/data/sets/table_survey.h"
#include "engine/data/tensors/csv_reader.h"
#include "engine/runtime/check.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

constexpr char kColumns[] = "columns";

absl::StatusOr<std::vector<std::string>> ResolvedFiles(const SeriesSource& source,
                                                       const TableConfig& config) {
  std::vector<std::string> files;
  for (const std::string& path : config.file()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> more, FilesOf(source.Resolve(path)));
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

// Nothing where the net is not known: the cells then say it.
absl::StatusOr<std::optional<LabelKind>> LabelKindOf(const SeriesSource& source,
                                                     const TableConfig& config) {
  if (source.inputs.empty()) return std::nullopt;
  const NetInput* label = source.Input(source.data.label_input());
  if (label == nullptr) return LabelKind::kNone;
  if (config.label_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no column feeds the net's input \"%s\"; write label: \"NAME\" for the "
                        "column of this name",
                        label->name));
  }
  if (!label->label) return LabelKind::kReal;
  return config.label_size() == 1 ? LabelKind::kClass : LabelKind::kIntegers;
}

// How rows become what the net's label input takes.
struct LabelShape {
  std::vector<int64_t> row;
  bool of_window = false;  // one for the last row of a window
};

LabelShape LabelShapeOf(const SeriesSource& source, const TableConfig& config) {
  const NetInput* label = source.Input(source.data.label_input());
  const int64_t labels = config.label_size();
  std::vector<int64_t> dims = labels > 1 ? std::vector<int64_t>{labels} : std::vector<int64_t>{};
  if (label == nullptr) return {dims};
  const bool of_window = config.has_window() && label->dims.size() <= (labels > 1 ? 1 : 0);
  const size_t before = config.has_window() && !of_window ? 1 : 0;  // axes
  // A net may take one number as [] or as [1], as a dense layer makes it.
  if (labels == 1 && label->dims.size() == before + 1 && label->dims.back() == 1) dims = {1};
  return {dims, of_window};
}

std::string Layout(const TableFit& fit) {
  std::vector<std::string> numbers, words;
  for (const TableColumn& column : fit.columns) {
    if (column.kind == TableColumn::ColumnKind::kNumber) {
      numbers.push_back(absl::StrCat(column.name, column.indicator ? " (2)" : ""));
    } else if (column.kind == TableColumn::ColumnKind::kCategory) {
      words.push_back(absl::StrCat(column.name, " (", column.values(), ")"));
    }
  }
  return absl::StrCat(numbers.empty() ? "" : absl::StrCat("numbers ", Listed(numbers)),
                      numbers.empty() || words.empty() ? "" : "; ",
                      words.empty() ? "" : absl::StrCat("words ", Listed(words)));
}

absl::Status CheckColumns(const SeriesSource& source, const TableConfig& config,
                          const TableFit& fit) {
  const NetInput* input = source.Input(kColumns);
  if (input == nullptr) return absl::OkStatus();
  std::vector<int64_t> dims = {fit.values()};
  if (config.has_window()) dims.insert(dims.begin(), config.window());
  if (fit.values() == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "no column is left for the net's input \"%s\"; remove it from the net", kColumns));
  }
  if (input->dims == dims) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the net's input \"%s\" has dims [%s], but these columns make [%s] (%s); write dims: [%s]",
      kColumns, absl::StrJoin(input->dims, ", "), absl::StrJoin(dims, ", "), Layout(fit),
      absl::StrJoin(dims, ", ")));
}

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
  int64_t stored() const { return stored_; }

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

absl::Status AddWindows(TableRows& rows, const TableConfig& config, bool label_of_window,
                        const std::string& file, MemoryDataset& dataset) {
  ASSIGN_OR_RETURN(auto series, SeriesOf(rows, file));
  const Windows windows(std::move(series), config.window());
  uint64_t bytes = 0;
  for (const RowArray& array : rows.arrays) bytes += array.rows.bytes.size();
  const double sample_bytes = static_cast<double>(bytes) / static_cast<double>(rows.groups.size()) *
                              static_cast<double>(config.window());
  RETURN_IF_ERROR(CheckFitsMemory(
      file, static_cast<uint64_t>(sample_bytes * static_cast<double>(windows.stored()))));
  for (RowArray& array : rows.arrays) {
    RETURN_IF_ERROR(
        dataset.Add(array.input, file, windows.Cut(array, array.is_label && label_of_window)));
    array.rows = {};
  }
  RETURN_IF_ERROR(dataset.Add("reset", file, windows.Resets(), /*reset=*/true));
  RETURN_IF_ERROR(dataset.Add("length", file, windows.Lengths()));
  std::vector<int64_t> groups;
  for (size_t s = 0; s < windows.samples().size(); ++s) {
    groups.insert(groups.end(), static_cast<size_t>(windows.samples()[s]), static_cast<int64_t>(s));
  }
  dataset.SetGroups(std::move(groups));
  dataset.SetSequences(windows.samples());
  return absl::OkStatus();
}

// The array's rows in this order.
HostArray InOrder(const HostArray& rows, const std::vector<int64_t>& order) {
  HostArray sorted{.dtype = rows.dtype, .dims = rows.dims, .bytes = {}};
  const size_t element = rows.bytes.size() / order.size();
  sorted.bytes.reserve(rows.bytes.size());
  for (const int64_t row : order) {
    sorted.bytes.append(rows.bytes, static_cast<size_t>(row) * element, element);
  }
  return sorted;
}

// A sample each.  In the order of their times, if there are any.
absl::Status AddRows(TableRows& rows, const TableConfig& config, const std::string& file,
                     MemoryDataset& dataset) {
  std::vector<int64_t> order(rows.times.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](int64_t row) { return rows.times[static_cast<size_t>(row)]; });
  const bool sorted = std::ranges::is_sorted(order);
  for (RowArray& array : rows.arrays) {
    if (!sorted) array.rows = InOrder(array.rows, order);
    if (config.text_size() == 1 && array.input == "length") {
      const int32_t* lengths = ElementsOf<int32_t>(array.rows);
      dataset.SetLengths({lengths, lengths + array.rows.dims[0]});
    }
    RETURN_IF_ERROR(dataset.Add(array.input, file, std::move(array.rows)));
  }
  if (!config.has_group() || rows.groups.empty()) return absl::OkStatus();
  std::vector<int64_t> groups;
  for (const int64_t row : order) groups.push_back(rows.groups[static_cast<size_t>(row)]);
  dataset.SetGroups(std::move(groups));
  return absl::OkStatus();
}

void AddNotes(const TableFit& fit, int64_t unnamed, MemoryDataset& dataset) {
  if (fit.values() > 0) {
    dataset.AddNote(
        absl::StrFormat("\"%s\" has %d values: %s", kColumns, fit.values(), Layout(fit)));
  }
  for (const TableColumn& column : fit.columns) {
    if (column.kind != TableColumn::ColumnKind::kIndex) continue;
    dataset.AddNote(absl::StrFormat("\"%s\" is from 0 to %d, for %d words",
                                    InputNameOf(column.name), column.words.size(),
                                    column.words.size()));
  }
  if (fit.label_kind == LabelKind::kClass) {
    dataset.AddNote(
        absl::StrFormat("classes of %s, from 0: %s", fit.labels[0], Listed(fit.classes)));
  } else if (!fit.labels.empty()) {
    dataset.AddNote(absl::StrCat("labels that are numbers: ", Listed(fit.labels)));
  }
  if (unnamed > 0) {
    dataset.AddNote(
        absl::StrFormat("%d column%s without a name left out, as pandas writes for its index",
                        unnamed, unnamed == 1 ? " is" : "s are"));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTable(const SeriesSource& source) {
  const TableConfig& config = source.data.train().table();
  ASSIGN_OR_RETURN(const std::optional<LabelKind> kind, LabelKindOf(source, config));
  ASSIGN_OR_RETURN(const auto files, ResolvedFiles(source, source.set().table()));
  std::optional<TableSurvey> survey;
  const auto make = [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const auto training, source.train ? files : ResolvedFiles(source, config));
    ASSIGN_OR_RETURN(survey, SurveyTable(training, config, kind));
    return survey->fit.text();
  };
  ASSIGN_OR_RETURN(std::string saved, FitFor(source, kTableFile, config.fit(), make));
  const std::string saved_in = config.has_fit() ? source.Resolve(config.fit()) : kTableFile;
  const absl::StatusOr<TableFit> parsed = ParseTableFit(saved);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(saved_in, ":", parsed.status().message()));
  }
  const TableFit& fit = *parsed;
  if (const absl::Status status = CheckTableFit(fit, config, kind); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(saved_in, " ", status.message()));
  }
  RETURN_IF_ERROR(CheckColumns(source, config, fit));

  int64_t rows = survey && source.train ? survey->rows : 0;
  if (rows == 0) {
    ASSIGN_OR_RETURN(rows, CountRows(files, config));
  }
  const LabelShape label = LabelShapeOf(source, config);
  const auto wants = [&](const std::string& input) {
    return source.inputs.empty() || source.Input(input) != nullptr;
  };
  ASSIGN_OR_RETURN(TableRows read, ReadRows(files, rows,
                                            {.config = config,
                                             .fit = fit,
                                             .label_input = source.data.label_input(),
                                             .label_dims = label.row,
                                             .places = config.has_window() || source.train,
                                             .wants = wants}));
  auto dataset = std::make_unique<MemoryDataset>();
  if (config.has_window()) {
    RETURN_IF_ERROR(AddWindows(read, config, label.of_window, files[0], *dataset));
  } else {
    RETURN_IF_ERROR(AddRows(read, config, files[0], *dataset));
  }
  dataset->SetFit({{kTableFile, std::move(saved)}});
  if (source.train) AddNotes(fit, survey ? survey->unnamed : 0, *dataset);
  for (std::string& note : read.notes) dataset->AddNote(std::move(note));
  return dataset;
}

}  // namespace gyre
