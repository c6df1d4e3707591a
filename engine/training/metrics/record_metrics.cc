#include "engine/training/metrics/record_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/decimal.h"

namespace gyre {
namespace {

constexpr double kBefore[] = {0.03, 0.07, 0.2, 0.5, 1};  // seconds: FRNN's
constexpr double kNever = -std::numeric_limits<double>::infinity();

Metric Value(std::string name, std::optional<double> value, const std::string& undefined = "") {
  if (!value) return {.name = std::move(name), .undefined = undefined};
  return {.name = std::move(name), .sum = *value, .count = 1};
}

// A layer `record` is for a program that predicts.
bool MakesMetric(const NetNode& node) {
  return node.spec.records >= 0 && !node.config->has_record();
}

bool Counts(const AlarmStep& step) { return !(step.time < 0); }

// Whether there is an event.  None if no step counts.
std::optional<bool> HasEvent(const AlarmConfig& config, const std::vector<AlarmStep>& steps) {
  std::optional<bool> event;
  for (const AlarmStep& step : steps) {
    if (!Counts(step)) continue;
    if (IsAtMost(step.time, config.earliest())) return true;
    event = false;
  }
  return event;
}

// The highest score of the steps at least `before` seconds before the event; a NaN is the highest.
double Highest(const std::vector<AlarmStep>& steps, double before) {
  double highest = kNever;
  for (const AlarmStep& step : steps) {
    if (!Counts(step) || !IsAtLeast(step.time, before) || std::isnan(highest)) continue;
    if (!(step.score <= highest)) highest = step.score;
  }
  return highest;
}

bool HasNaN(std::span<const std::vector<AlarmStep>> sequences) {
  return std::ranges::any_of(sequences, [](const std::vector<AlarmStep>& steps) {
    return std::ranges::any_of(steps, [](const AlarmStep& step) {
      return std::isnan(step.time) || (Counts(step) && std::isnan(step.score));
    });
  });
}

std::vector<Metric> TellRocAuc(const std::string& name, std::span<const double> records) {
  std::vector<Scored> scored;
  int64_t positive = 0;
  for (size_t i = 0; i < records.size(); i += 2) {
    if (records[i + 1] < 0) continue;
    scored.push_back({records[i], records[i + 1] == 1});
    positive += scored.back().positive;
  }
  const auto all = static_cast<int64_t>(scored.size());
  const std::string undefined =
      all == 0 ? "no label counts"
               : absl::StrFormat("all %d labels are %d", all, positive > 0 ? 1 : 0);
  return {Value(name, RocAuc(std::move(scored)), undefined)};
}

std::vector<Metric> TellAlarms(const std::string& name, const AlarmConfig& config,
                               std::span<const std::vector<AlarmStep>> sequences) {
  // A NaN is not above a threshold: it would look like silence.
  if (HasNaN(sequences)) return {Value(name, std::nan(""))};
  const AlarmCounts counts = CountAlarms(config, sequences);
  std::vector<Metric> metrics;
  const auto count = [&](absl::string_view what, int64_t number) {
    metrics.push_back(Value(absl::StrCat(name, "_", what), static_cast<double>(number)));
  };
  count("in_time", counts.in_time);
  count("early", counts.early);
  count("late", counts.late);
  count("missed", counts.missed);
  count("false", counts.false_alarms);
  count("quiet", counts.quiet);
  const int64_t without = counts.false_alarms + counts.quiet;
  const int64_t with = counts.in_time + counts.early + counts.late + counts.missed;
  const std::string undefined =
      absl::StrFormat("of %d sequences, %d have an event up to %g seconds away", with + without,
                      with, config.earliest());
  const auto area = [&](const std::string& of, double before) {
    metrics.push_back(Value(of, AlarmArea(config, before, sequences), undefined));
  };
  const std::vector<double> given(config.before().begin(), config.before().end());
  area(absl::StrCat(name, "_auc"), config.latest());
  for (const double before : given.empty() ? std::span<const double>(kBefore) : given) {
    area(absl::StrFormat("%s_auc_%gms", name, before * 1000), before);
  }
  return metrics;
}

}  // namespace

std::optional<double> RocAuc(std::vector<Scored> scored) {
  if (std::ranges::any_of(scored, [](const Scored& s) { return std::isnan(s.score); })) {
    return std::nan("");
  }
  std::ranges::sort(scored, {}, &Scored::score);
  // Half pairs that are won; below: others with lower scores.
  uint64_t won = 0, positives = 0, below = 0;
  for (size_t begin = 0, end = 0; begin < scored.size(); begin = end) {
    uint64_t equal[2] = {};  // others, positives
    for (; end < scored.size() && scored[end].score == scored[begin].score; ++end) {
      ++equal[scored[end].positive];
    }
    won += equal[1] * (2 * below + equal[0]);
    positives += equal[1];
    below += equal[0];
  }
  if (positives == 0 || below == 0) return std::nullopt;
  return static_cast<double>(won) / static_cast<double>(2 * positives * below);
}

AlarmCounts CountAlarms(const AlarmConfig& config,
                        std::span<const std::vector<AlarmStep>> sequences) {
  AlarmCounts counts;
  for (const std::vector<AlarmStep>& steps : sequences) {
    const auto alarm = std::ranges::find_if(steps, [&](const AlarmStep& step) {
      return Counts(step) && step.score > config.threshold();
    });
    const bool none = alarm == steps.end();
    const std::optional<bool> event = HasEvent(config, steps);
    if (!event) continue;
    ++(!*event                                     ? (none ? counts.quiet : counts.false_alarms)
       : none                                      ? counts.missed
       : !IsAtMost(alarm->time, config.earliest()) ? counts.early
       : !IsAtLeast(alarm->time, config.latest())  ? counts.late
                                                   : counts.in_time);
  }
  return counts;
}

std::optional<double> AlarmArea(const AlarmConfig& config, double before,
                                std::span<const std::vector<AlarmStep>> sequences) {
  std::vector<Scored> scored;
  for (const std::vector<AlarmStep>& steps : sequences) {
    const std::optional<bool> event = HasEvent(config, steps);
    if (event) scored.push_back({Highest(steps, *event ? before : 0), *event});
  }
  return RocAuc(std::move(scored));
}

std::vector<std::vector<AlarmStep>> SequencesOf(std::span<const double> records, int64_t steps,
                                                std::span<const TestRun> runs) {
  std::vector<std::vector<AlarmStep>> sequences;
  int64_t first = 0;
  for (const TestRun& run : runs) {
    for (int64_t row = 0; row < run.batch; ++row) {
      sequences.emplace_back();
      for (int64_t batch = 0; batch < run.batches; ++batch) {
        const int64_t sample = first + batch * run.batch + row;
        for (int64_t step = 0; step < steps; ++step) {
          const double* const record = &records[static_cast<size_t>(3 * (sample * steps + step))];
          if (record[2] != 0 && !sequences.back().empty()) sequences.emplace_back();
          sequences.back().push_back({record[0], record[1]});
        }
      }
    }
    first += run.batch * run.batches;
  }
  return sequences;
}

int64_t RecordBytes(const NetSpec& net, int64_t samples) {
  int64_t bytes = 0;
  for (const NetNode& node : net.nodes) {
    if (!MakesMetric(node)) continue;
    const Shape& shape = node.spec.states[node.spec.records].shape;
    bytes += samples * shape.elements(1, shape.rank()) * static_cast<int64_t>(sizeof(double));
  }
  return bytes;
}

TestRecords::TestRecords(const NetSpec& net, int64_t samples) : net_(net) {
  for (size_t n = 0; n < net.nodes.size(); ++n) {
    const LayerSpec& spec = net.nodes[n].spec;
    if (!MakesMetric(net.nodes[n])) continue;
    const Shape& shape = spec.states[spec.records].shape;
    nodes_.push_back(
        {.node = static_cast<int>(n), .steps = shape[1], .columns = shape[2], .values = {}});
    nodes_.back().values.resize(static_cast<size_t>(samples * shape[1] * shape[2]));
  }
}

void TestRecords::Put(int node, int64_t first, const Tensor& records) {
  const auto found = std::ranges::find(nodes_, node, &OfNode::node);
  if (found == nodes_.end()) return;
  OfNode& of = *found;
  std::copy_n(records.as<double>(), records.elements(),
              of.values.begin() + first * of.steps * of.columns);
}

std::vector<Tensor> TestRecords::all() {
  std::vector<Tensor> all;
  for (OfNode& of : nodes_) {
    all.push_back({of.values.data(), Shape({static_cast<int64_t>(of.values.size())}), DType::kF64});
  }
  return all;
}

void TestRecords::Tell(std::vector<Metric>& metrics) const {
  for (const OfNode& of : nodes_) {
    const LayerConfig& config = *net_.nodes[of.node].config;
    const std::vector<Metric> told =
        config.has_alarm()
            ? TellAlarms(config.name(), config.alarm(), SequencesOf(of.values, of.steps, runs_))
            : TellRocAuc(config.name(), of.values);
    metrics.insert(metrics.end(), told.begin(), told.end());
  }
}

}  // namespace gyre
