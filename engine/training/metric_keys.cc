#include "engine/training/metric_keys.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/training/metrics.h"
#include "engine/training/record_metrics.h"

namespace gyre {
namespace {

// Keys of a step's line; those of a test's have "test_" before them, all but the first.
const char* const kOfStep[] = {"step",       "epoch",         "seconds",           "learning_rate",
                               "loss_scale", "skipped_steps", "samples_per_second"};

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
  for (const NetSpec* const spec : {&train, test}) {
    if (spec == nullptr) continue;
    const std::vector<Metric> metrics = AllMetrics(*spec);
    std::set<std::string> keys;
    if (spec == &train) keys.insert(std::begin(kOfStep), std::end(kOfStep));
    std::vector<std::string> names;
    for (const auto& [name, value] : NamedValues(metrics)) names.push_back(name);
    // A loss of this name gives way to the total of all; another value would be missed.
    for (const Metric& metric : metrics) {
      if (metric.name == "loss" && !metric.is_loss && HasLoss(metrics)) names.push_back("loss");
    }
    for (const std::string& name : names) {
      if (keys.insert(name).second) continue;
      const LayerConfig* const layer = LayerOf(*net.message, name);
      const bool of_step = spec == &train && std::ranges::count(kOfStep, name) > 0;
      const absl::Status status = absl::InvalidArgumentError(absl::StrCat(
          "its value would be \"", name, "\" in metrics.jsonl, which ",
          of_step ? "says something else about a step" : "is that of another layer, too",
          "; rename the layer"));
      return layer == nullptr ? status : AtLayer(net, *layer, status);
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre
