#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/training/metrics/metrics.h"
#include "engine/training/metrics/record_metrics.h"

namespace gyre {
namespace {

// Keys of a step's line, then those of the line with which a run that pages ends.  Those of a
// test's line have "test_" before them, all but the first.
const char* const kOfRun[] = {"step",
                              "epoch",
                              "seconds",
                              "learning_rate",
                              "loss_scale",
                              "skipped_steps",
                              "samples_per_second",
                              "data_wait_seconds",
                              "bad_samples",
                              "fetched_bytes",
                              "written_bytes",
                              "iteration_seconds",
                              "expected_iteration_seconds",
                              "expected_stalled_seconds",
                              "stalled_seconds",
                              "host_seconds"};

// Of all values that a line may have: some have none at times.
std::vector<Metric> AllMetrics(const NetSpec& net) {
  std::vector<Metric> metrics = MetricsOf(net);
  TestRecords(net, /*samples=*/0).Tell(metrics);
  for (Metric& metric : metrics) metric.undefined.clear();
  return metrics;
}

// The layer of that name, or the one with the longest that the key begins with.
const LayerConfig* LayerOf(const NetConfig& net, const std::string& key) {
  const LayerConfig* found = nullptr;
  for (const LayerConfig& layer : net.layer()) {
    const bool fits = key == layer.name() || absl::StartsWith(key, layer.name() + "_");
    if (fits && (found == nullptr || layer.name().size() > found->name().size())) found = &layer;
  }
  return found;
}

}  // namespace

absl::Status CheckMetricKeys(const Parsed<NetConfig>& net, const NetSpec& train,
                             const NetSpec* test) {
  std::set<std::string> keys(std::begin(kOfRun), std::end(kOfRun)), of_train;
  for (const NetSpec* const spec : {&train, test}) {
    if (spec == nullptr) continue;
    const std::vector<Metric> metrics = AllMetrics(*spec);
    std::vector<std::string> names;
    for (const auto& [name, value] : NamedValues(metrics)) names.push_back(name);
    // A loss of this name gives way to the total of all; another value would be missed.
    for (const Metric& metric : metrics) {
      if (metric.name == "loss" && !metric.is_loss && HasLoss(metrics)) names.push_back("loss");
    }
    for (const std::string& name : names) {
      const std::string key = absl::StrCat(spec == &train ? "" : "test_", name);
      if (keys.insert(key).second) {
        if (spec == &train) of_train.insert(key);
        continue;
      }
      const bool by_train = spec != &train && of_train.contains(key);
      const LayerConfig* const layer = LayerOf(*net.message, by_train ? key : name);
      const bool of_run = std::ranges::count(kOfRun, key) > 0;
      const absl::Status status = absl::InvalidArgumentError(
          absl::StrCat("its value would be \"", key, "\" in metrics.jsonl, which ",
                       of_run ? "says something else about a run" : "is another value, too",
                       "; rename the layer"));
      return layer == nullptr ? status : AtLayer(net, *layer, status);
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre
