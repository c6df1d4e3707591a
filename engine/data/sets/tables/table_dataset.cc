// Rows of CSV files: a sample each, or series of them in samples of equal length.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/sets/hold_out.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/tables/table_fit.h"
#include "engine/data/sets/tables/table_reader.h"
#include "engine/data/sets/tables/table_rows.h"
#include "engine/data/sets/tables/table_survey.h"
#include "engine/data/sets/tables/table_windows.h"
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

// Without this a table's weights would be left out unsaid.
absl::Status CheckWeight(const SeriesSource& source, const TableConfig& config) {
  const std::string& input = source.data.weight_input();
  const NetInput* weight = source.Input(input);
  if (!config.has_weight() || source.inputs.empty()) return absl::OkStatus();
  if (weight != nullptr && weight->dims.empty() && !weight->label) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "column %s is the samples' weight, but the net has no REAL input \"%s\" without dims; write "
      "input { name: \"%s\" } and make it the loss's third input",
      Shown(config.weight()), input, input));
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

// The rows in the order of their times, if there are any.
std::vector<int64_t> OrderOf(const TableRows& rows) {
  std::vector<int64_t> order(rows.times.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](int64_t row) { return rows.times[static_cast<size_t>(row)]; });
  return order;
}

// Of `rows` rows of data.train, those that data.split holds back.  `all` is the fit of all rows.
// Empty where nothing can be split, which Split says later.
absl::StatusOr<std::vector<bool>> HeldRows(const SeriesSource& source,
                                           const std::vector<std::string>& files, int64_t rows,
                                           const TableFit& all) {
  const TableConfig& config = source.data.train().table();
  const HoldOutConfig& split = source.data.split();
  const bool by_class = split.by() == HoldOutConfig::CLASS;
  const bool by_group = split.by() == HoldOutConfig::GROUP;
  if ((config.has_window() && !by_group) || (by_class && all.label_kind != LabelKind::kClass) ||
      (by_group && !config.has_group())) {
    return std::vector<bool>{};
  }
  TableFit labels;  // no more is to be read
  if (by_class) {
    labels.labels = all.labels;
    labels.label_kind = all.label_kind;
    labels.classes = all.classes;
  }
  ASSIGN_OR_RETURN(TableRows read, ReadRows(files, rows,
                                            {.config = config,
                                             .fit = labels,
                                             .label_input = source.data.label_input(),
                                             .places = true,
                                             .wants = [](const std::string&) { return true; }}));
  const std::vector<int64_t> order = OrderOf(read);
  std::vector<int64_t> kinds;
  for (const int64_t row : order) {
    if (by_class) kinds.push_back(ElementsOf<int32_t>(read.arrays[0].rows)[row]);
    if (by_group) kinds.push_back(read.groups[static_cast<size_t>(row)]);
  }
  const std::vector<bool> of_samples = HeldOut(rows, split, kinds);
  std::vector<bool> held(of_samples.size());
  for (size_t i = 0; i < held.size(); ++i) held[static_cast<size_t>(order[i])] = of_samples[i];
  return held;
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
absl::Status AddRows(TableRows& rows, const TableUse& use, MemoryDataset& dataset) {
  const TableConfig& config = use.config;
  const std::vector<int64_t> order = OrderOf(rows);
  const bool sorted = std::ranges::is_sorted(order);
  for (RowArray& array : rows.arrays) {
    if (!sorted) array.rows = InOrder(array.rows, order);
    if (config.text_size() == 1 && array.input == "length") {
      const int32_t* lengths = ElementsOf<int32_t>(array.rows);
      dataset.SetLengths({lengths, lengths + array.rows.dims[0]});
    }
    RETURN_IF_ERROR(dataset.Add(array.input, use.files[0], std::move(array.rows)));
  }
  if (sorted) dataset.SetFiles(use.files, std::move(rows.rows_of_files));
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
  if (fit.label_kind != LabelKind::kClass && !fit.labels.empty()) {
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
  RETURN_IF_ERROR(CheckWeight(source, config));
  ASSIGN_OR_RETURN(const auto files, ResolvedFiles(source, source.set().table()));
  std::optional<TableSurvey> survey;
  const auto make = [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const auto training, source.train ? files : ResolvedFiles(source, config));
    ASSIGN_OR_RETURN(survey, SurveyTable(training, config, kind));
    if (!source.data.has_split()) return survey->fit.text();
    ASSIGN_OR_RETURN(const auto held, HeldRows(source, training, survey->rows, survey->fit));
    ASSIGN_OR_RETURN(survey, SurveyTable(training, config, kind, held));
    return survey->fit.text();
  };
  ASSIGN_OR_RETURN(std::string saved, FitFor(source, kTableFile, config.fit(), make));
  const std::string saved_in = config.has_fit() ? source.Resolve(config.fit()) : kTableFile;
  absl::StatusOr<TableFit> parsed = ParseTableFit(saved);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(saved_in, ":", parsed.status().message()));
  }
  TableFit& fit = *parsed;
  if (const absl::Status status = CheckTableFit(fit, config, kind); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(saved_in, " ", status.message()));
  }
  RETURN_IF_ERROR(CheckColumns(source, config, fit));
  if (kind == LabelKind::kNone) {  // the column need not be there
    fit.labels.clear();
    fit.label_kind = LabelKind::kNone;
  }

  int64_t rows = survey && source.train ? survey->rows : 0;
  if (rows == 0) {
    ASSIGN_OR_RETURN(rows, CountRows(files, config));
  }
  const LabelShape label = LabelShapeOf(source, config);
  const auto wants = [&](const std::string& input) {
    return source.inputs.empty() || source.Input(input) != nullptr;
  };
  const std::string weight = wants(source.data.weight_input()) ? source.data.weight_input() : "";
  ASSIGN_OR_RETURN(TableRows read, ReadRows(files, rows,
                                            {.config = config,
                                             .fit = fit,
                                             .label_input = source.data.label_input(),
                                             .label_dims = label.row,
                                             .weight_input = config.has_weight() ? weight : "",
                                             .places = config.has_window() || source.train,
                                             .tells_unknown = !source.train,
                                             .wants = wants}));
  auto dataset = std::make_unique<MemoryDataset>();
  const TableUse use{.config = config,
                     .files = files,
                     .train = source.train,
                     .label_of_window = label.of_window,
                     .weight_input = weight};
  RETURN_IF_ERROR(config.has_window() ? AddWindows(read, use, *dataset)
                                      : AddRows(read, use, *dataset));
  dataset->SetFit({{kTableFile, std::move(saved)}});
  if (source.train) AddNotes(fit, survey ? survey->unnamed : 0, *dataset);
  for (std::string& note : read.notes) dataset->AddNote(std::move(note));
  return dataset;
}

}  // namespace gyre
