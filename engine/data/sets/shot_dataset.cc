// Shots in chunks of equal length: signals divided by their scales, and what is to be learned.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/shot_file.h"
#include "engine/runtime/check.h"
#include "engine/runtime/decimal.h"

namespace gyre {
namespace {

// As times until the event: beyond the shot's end, and where there is no event.
constexpr char kScalesFile[] = "scales.txt";  // in a fit
constexpr float kBeyond = -1, kNever = 1e9;

std::vector<std::string> NamesOf(const ShotsConfig& config) {
  std::vector<std::string> names(config.signal().begin(), config.signal().end());
  names.insert(names.end(), config.profile().begin(), config.profile().end());
  return names;
}

// The shots of `folder`, with the signals of data.train.  left_out: a note of its other files.
absl::StatusOr<std::vector<Shot>> ReadShots(const std::string& folder, const ShotsConfig& config,
                                            std::string* left_out = nullptr) {
  ASSIGN_OR_RETURN(const Listing files, List(folder, {".npz", ".csv"}));
  if (left_out != nullptr) *left_out = LeftOutOf(folder, files.others, ".npz or .csv files");
  if (files.paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": no .npz or .csv file in it"));
  }
  std::vector<Shot> shots;
  for (const std::string& file : files.paths) {
    ASSIGN_OR_RETURN(Shot shot, ReadShot(file, {config.signal().begin(), config.signal().end()},
                                         {config.profile().begin(), config.profile().end()}));
    for (size_t i = 0; !shots.empty() && i < shot.signals.size(); ++i) {
      const int64_t points = shot.signals[i].points, others = shots[0].signals[i].points;
      if (points == others) continue;
      return absl::InvalidArgumentError(absl::StrFormat("%s: %s has %d points, but %d in %s", file,
                                                        NamesOf(config)[i], points, others,
                                                        shots[0].file));
    }
    shots.push_back(std::move(shot));
  }
  return shots;
}

double Deviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float x : values) sum += x;
  const double mean = sum / static_cast<double>(values.size());
  for (const float x : values) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A line a signal: its name and the median of its deviations in each shot.
absl::StatusOr<std::string> MakeScales(const std::vector<Shot>& shots, const ShotsConfig& config) {
  const auto has_event = [](const Shot& shot) { return std::isfinite(shot.event); };
  if (std::ranges::none_of(shots, has_event)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "none of the %d shots beside %s has an event to be learned", shots.size(), shots[0].file));
  }
  std::string text;
  const std::vector<std::string> names = NamesOf(config);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    std::vector<double> deviations;
    for (const Shot& shot : shots) deviations.push_back(Deviation(shot.signals[i].values));
    const double scale = Median(std::move(deviations));
    if (!(scale > 0)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s does not vary in half of the shots beside %s; leave it out", name, shots[0].file));
    }
    absl::StrAppend(&text, name, "\t", ExactText(scale), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<double>> ParseScales(const std::string& file, const std::string& text,
                                                const ShotsConfig& config) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  const std::vector<std::string> names = NamesOf(config);
  std::vector<double> scales;
  for (size_t i = 0; i < std::max(lines.size(), names.size()); ++i) {
    const std::string line = i < lines.size() ? lines[i] : "";
    const std::string name = i < names.size() ? names[i] : "";
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    double scale = 0;
    if (cells.size() != 2 || cells[0] != name || !absl::SimpleAtod(cells[1], &scale) ||
        !(scale > 0) || !std::isfinite(scale)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s:%d: expected %s, got \"%s\"", file, i + 1,
          name.empty() ? "the end" : absl::StrCat(name, " TAB SCALE, more than 0"), line));
    }
    scales.push_back(scale);
  }
  return scales;
}

// Adds the arrays of the shots in chunks, and then of a blank chunk.
absl::Status AddChunks(const std::vector<Shot>& shots, const std::vector<double>& scales,
                       const ShotsConfig& config, const std::string& folder,
                       MemoryDataset& dataset) {
  const int64_t length = config.length();
  std::vector<int64_t> chunks, begins;  // of each shot: how many, and its first row of all times
  int64_t stored = 0;
  for (const Shot& shot : shots) {
    begins.push_back(stored * length);
    chunks.push_back((static_cast<int64_t>(shot.time.size()) + length - 1) / length);
    stored += chunks.back();
  }
  ++stored;             // the blank one
  uint64_t values = 3;  // target, reset, remaining
  for (const ShotSignal& signal : shots[0].signals) values += static_cast<uint64_t>(signal.points);
  RETURN_IF_ERROR(CheckFitsMemory(folder, values * sizeof(float) * static_cast<uint64_t>(stored) *
                                              static_cast<uint64_t>(length)));

  // Signals first to last - 1, side by side.
  const auto scaled = [&](size_t first, size_t last) {
    int64_t width = 0;
    for (size_t i = first; i < last; ++i) width += shots[0].signals[i].points;
    HostArray array = NewArray<float>(stored, {length, width});
    for (size_t s = 0; s < shots.size(); ++s) {
      int64_t column = 0;
      for (size_t i = first; i < last; ++i) {
        const ShotSignal& signal = shots[s].signals[i];
        for (size_t v = 0; v < signal.values.size(); ++v) {
          const auto t = static_cast<int64_t>(v) / signal.points;
          const auto point = static_cast<int64_t>(v) % signal.points;
          const double x = static_cast<double>(signal.values[v]) / scales[i];
          ElementsOf<float>(array)[(begins[s] + t) * width + column + point] =
              static_cast<float>(std::clamp(x, -config.clip(), config.clip()));
        }
        column += signal.points;
      }
    }
    return array;
  };
  const auto signals = static_cast<size_t>(config.signal_size());
  const std::vector<std::string> names = NamesOf(config);
  if (signals > 0) RETURN_IF_ERROR(dataset.Add("signals", folder, scaled(0, signals)));
  for (size_t i = signals; i < names.size(); ++i) {
    RETURN_IF_ERROR(dataset.Add(names[i], folder, scaled(i, i + 1)));
  }

  HostArray target = NewArray<int32_t>(stored, {length}), reset = target,
            remaining = NewArray<float>(stored, {length}), lengths = NewArray<int32_t>(stored, {});
  std::fill_n(ElementsOf<int32_t>(target), stored * length, kIgnored);
  std::fill_n(ElementsOf<float>(remaining), stored * length, kBeyond);
  for (size_t s = 0; s < shots.size(); ++s) {
    int64_t at = begins[s];
    ElementsOf<int32_t>(reset)[at] = 1;
    for (const double time : shots[s].time) {
      const double until = shots[s].event - time;
      ElementsOf<int32_t>(target)[at] = IsAtMost(until, config.warning()) ? 1 : 0;
      ElementsOf<float>(remaining)[at] = static_cast<float>(std::min<double>(kNever, until));
      ++ElementsOf<int32_t>(lengths)[at++ / length];
    }
  }
  RETURN_IF_ERROR(dataset.Add("target", folder, std::move(target)));
  RETURN_IF_ERROR(dataset.Add("remaining", folder, std::move(remaining)));
  RETURN_IF_ERROR(dataset.Add("reset", folder, std::move(reset), /*reset=*/true));
  RETURN_IF_ERROR(dataset.Add("length", folder, std::move(lengths)));
  dataset.SetSequences(std::move(chunks));
  return absl::OkStatus();
}

// Two arrays would feed one input.
absl::Status CheckNames(const ShotsConfig& config) {
  std::set<std::string> names = {"signals", "remaining", "target", "reset", "length"};
  for (const std::string& name : NamesOf(config)) {
    if (name != "time" && name != "event" && names.insert(name).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no signal or profile can be called \"", name, "\": that is taken"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenShots(const SeriesSource& source) {
  const ShotsConfig& config = source.data.train().shots();
  RETURN_IF_ERROR(CheckNames(config));
  const std::string folder = source.Resolve(source.set().shots().folder());
  std::string left_out;
  ASSIGN_OR_RETURN(const std::vector<Shot> shots, ReadShots(folder, config, &left_out));
  const auto make = [&]() -> absl::StatusOr<std::string> {
    if (source.train) return MakeScales(shots, config);
    ASSIGN_OR_RETURN(const auto training, ReadShots(source.Resolve(config.folder()), config));
    return MakeScales(training, config);
  };
  ASSIGN_OR_RETURN(std::string fit, FitFor(source, kScalesFile, config.scales(), make));
  const std::string scales_file =
      config.has_scales() ? source.Resolve(config.scales()) : kScalesFile;
  ASSIGN_OR_RETURN(const std::vector<double> scales, ParseScales(scales_file, fit, config));

  auto dataset = std::make_unique<MemoryDataset>();
  RETURN_IF_ERROR(AddChunks(shots, scales, config, folder, *dataset));
  dataset->SetFit({{kScalesFile, std::move(fit)}});
  dataset->AddNote(left_out);
  return dataset;
}

}  // namespace gyre
