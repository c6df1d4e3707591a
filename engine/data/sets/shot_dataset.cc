// Shots in chunks of equal length: signals divided by their scales, and what is to be learned.
#include <algorithm>
#include <charconv>
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
    char number[32];
    const auto end = std::to_chars(number, number + sizeof(number), scale).ptr;
    absl::StrAppend(&text, name, "\t", std::string(number, end), "\n");
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

// What the chunks of the shots hold, and then a blank chunk.
class Chunks {
 public:
  Chunks(const std::vector<Shot>& shots, const ShotsConfig& config)
      : shots_(shots), config_(config), length_(config.length()) {
    for (const Shot& shot : shots) {
      counts_.push_back((static_cast<int64_t>(shot.time.size()) + length_ - 1) / length_);
      stored_ += counts_.back();
    }
    ++stored_;  // the blank one
  }

  const std::vector<int64_t>& counts() const { return counts_; }
  uint64_t bytes() const {
    uint64_t values = 3;  // target, reset, remaining
    for (const ShotSignal& signal : shots_[0].signals)
      values += static_cast<uint64_t>(signal.points);
    return values * sizeof(float) * static_cast<uint64_t>(stored_) * static_cast<uint64_t>(length_);
  }

  // Signals first to last - 1, side by side.
  HostArray Signals(size_t first, size_t last, const std::vector<double>& scales) const {
    int64_t width = 0;
    for (size_t i = first; i < last; ++i) width += shots_[0].signals[i].points;
    HostArray array = NewArray<float>(stored_, {length_, width});
    ForEachShot([&](const Shot& shot, int64_t row) {
      int64_t column = 0;
      for (size_t i = first; i < last; ++i) {
        const ShotSignal& signal = shot.signals[i];
        for (size_t v = 0; v < signal.values.size(); ++v) {
          const auto t = static_cast<int64_t>(v) / signal.points;
          const auto point = static_cast<int64_t>(v) % signal.points;
          const double x = static_cast<double>(signal.values[v]) / scales[i];
          ElementsOf<float>(array)[(row + t) * width + column + point] =
              static_cast<float>(std::clamp(x, -config_.clip(), config_.clip()));
        }
        column += signal.points;
      }
    });
    return array;
  }

  HostArray Targets() const {
    HostArray array = NewArray<int32_t>(stored_, {length_});
    std::fill_n(ElementsOf<int32_t>(array), stored_ * length_, kIgnored);
    ForEachTime([&](const Shot& shot, size_t t, int64_t row) {
      ElementsOf<int32_t>(array)[row] =
          IsAtMost(shot.event - shot.time[t], config_.warning()) ? 1 : 0;
    });
    return array;
  }

  HostArray Remaining() const {
    HostArray array = NewArray<float>(stored_, {length_});
    std::fill_n(ElementsOf<float>(array), stored_ * length_, kBeyond);
    ForEachTime([&](const Shot& shot, size_t t, int64_t row) {
      const double remaining = std::min<double>(kNever, shot.event - shot.time[t]);
      ElementsOf<float>(array)[row] = static_cast<float>(remaining);
    });
    return array;
  }

  HostArray Resets() const {
    HostArray array = NewArray<int32_t>(stored_, {length_});
    ForEachShot([&](const Shot&, int64_t row) { ElementsOf<int32_t>(array)[row] = 1; });
    return array;
  }

  HostArray Lengths() const {
    HostArray array = NewArray<int32_t>(stored_, {});
    ForEachTime(
        [&](const Shot&, size_t, int64_t row) { ++ElementsOf<int32_t>(array)[row / length_]; });
    return array;
  }

 private:
  // With the number of its first time among those of all chunks.
  template <typename Use>
  void ForEachShot(const Use& use) const {
    int64_t row = 0;
    for (size_t s = 0; s < shots_.size(); ++s) {
      use(shots_[s], row);
      row += counts_[s] * length_;
    }
  }
  template <typename Use>
  void ForEachTime(const Use& use) const {
    ForEachShot([&](const Shot& shot, int64_t row) {
      for (size_t t = 0; t < shot.time.size(); ++t) use(shot, t, row + static_cast<int64_t>(t));
    });
  }

  const std::vector<Shot>& shots_;
  const ShotsConfig& config_;
  const int64_t length_;
  std::vector<int64_t> counts_;
  int64_t stored_ = 0;
};

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
  ASSIGN_OR_RETURN(Fit fit, FitFor(source, "scales.txt", config.scales(), make));
  const std::string scales_file = config.has_scales() ? source.Resolve(config.scales()) : fit.name;
  ASSIGN_OR_RETURN(const std::vector<double> scales, ParseScales(scales_file, fit.text, config));

  const Chunks chunks(shots, config);
  RETURN_IF_ERROR(CheckFitsMemory(folder, chunks.bytes()));
  auto dataset = std::make_unique<MemoryDataset>();
  const auto signals = static_cast<size_t>(config.signal_size());
  const std::vector<std::string> names = NamesOf(config);
  if (signals > 0) {
    RETURN_IF_ERROR(dataset->Add("signals", folder, chunks.Signals(0, signals, scales)));
  }
  for (size_t i = signals; i < scales.size(); ++i) {
    RETURN_IF_ERROR(dataset->Add(names[i], folder, chunks.Signals(i, i + 1, scales)));
  }
  RETURN_IF_ERROR(dataset->Add("target", folder, chunks.Targets()));
  RETURN_IF_ERROR(dataset->Add("remaining", folder, chunks.Remaining()));
  RETURN_IF_ERROR(dataset->Add("reset", folder, chunks.Resets(), /*reset=*/true));
  RETURN_IF_ERROR(dataset->Add("length", folder, chunks.Lengths()));
  dataset->SetSequences(chunks.counts());
  dataset->SetFit(std::move(fit));
  dataset->AddNote(left_out);
  return dataset;
}

}  // namespace gyre
