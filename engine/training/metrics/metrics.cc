#include "engine/training/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/training/metrics/record_metrics.h"

namespace gyre {
namespace {

// What is told beside a mean.
NamedNumbers Beside(const Metric& metric) {
  const std::string before = metric.name == "loss" ? "" : absl::StrCat(metric.name, "_");
  NamedNumbers values;
  if (metric.perplexity) {
    values.emplace_back(absl::StrCat(before, "perplexity"), std::exp(metric.value()));
  }
  if (metric.bits_per_character) {
    values.emplace_back(absl::StrCat(before, "bits_per_character"),
                        metric.value() / std::numbers::ln2);
  }
  return values;
}

// Keys of a step's line, then those of the line with which a run that pages ends.  Those of a
// test's line have "test_" before them, all but the first.
constexpr char kOfRun[] =
    "step epoch seconds learning_rate loss_scale skipped_steps samples_per_second "
    "data_wait_seconds bad_samples fetched_bytes written_bytes iteration_seconds "
    "expected_iteration_seconds expected_stalled_seconds stalled_seconds host_seconds";

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

bool HasLoss(const std::vector<Metric>& metrics) {
  return std::ranges::any_of(metrics, [](const Metric& metric) { return metric.is_loss; });
}

std::vector<Metric> MetricsOf(const NetSpec& net) {
  std::vector<Metric> metrics;
  for (const NetNode& node : net.nodes) {
    if (node.spec.metric < 0) continue;
    const SoftmaxCrossEntropyConfig& entropy = node.config->softmax_cross_entropy();
    metrics.push_back({.name = node.config->name(),
                       .is_loss = node.spec.loss_output >= 0,
                       .weight = node.spec.loss_weight,
                       .perplexity = entropy.perplexity(),
                       .bits_per_character = entropy.bits_per_character()});
  }
  return metrics;
}

double TotalLoss(const std::vector<Metric>& metrics) {
  double total = 0;
  for (const Metric& metric : metrics) {
    if (metric.is_loss) total += metric.weight * metric.value();
  }
  return total;
}

NamedNumbers NamedValues(const std::vector<Metric>& metrics) {
  NamedNumbers values;
  const bool has_total = HasLoss(metrics);
  if (has_total) values.emplace_back("loss", TotalLoss(metrics));
  for (const Metric& metric : metrics) {
    if (!metric.undefined.empty()) continue;
    if (!has_total || metric.name != "loss") values.emplace_back(metric.name, metric.value());
    for (auto& value : Beside(metric)) values.push_back(std::move(value));
  }
  return values;
}

absl::Status CheckFiniteMetrics(const std::vector<Metric>& metrics) {
  for (const Metric& metric : metrics) {
    if (std::isfinite(metric.value())) continue;
    return absl::InternalError(absl::StrFormat("%s is not finite", metric.name));
  }
  return absl::OkStatus();
}

void AddSums(const double* sums, std::vector<Metric>& metrics) {
  for (Metric& metric : metrics) {
    metric.sum += *sums++;
    metric.count += *sums++;
  }
}

std::vector<std::string> FormatMetrics(const std::vector<Metric>& metrics,
                                       absl::string_view prefix) {
  std::vector<std::string> parts;
  if (HasLoss(metrics)) {
    parts.push_back(absl::StrFormat("%sloss %.4f", prefix, TotalLoss(metrics)));
  }
  for (const Metric& metric : metrics) {
    for (const auto& [name, value] : Beside(metric)) {
      parts.push_back(absl::StrFormat("%s%s %.4f", prefix, name, value));
    }
    if (metric.is_loss) continue;
    parts.push_back(
        metric.undefined.empty()
            ? absl::StrFormat("%s%s %.4f", prefix, metric.name, metric.value())
            : absl::StrFormat("%s%s undefined: %s", prefix, metric.name, metric.undefined));
  }
  return parts;
}

absl::Status CheckMetricKeys(const Parsed<NetConfig>& net, const NetSpec& train,
                             const NetSpec* test) {
  const std::set<std::string> of_run = absl::StrSplit(kOfRun, ' ');
  std::set<std::string> keys = of_run, of_train;
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
      const absl::Status status = absl::InvalidArgumentError(absl::StrCat(
          "its value would be \"", key, "\" in metrics.jsonl, which ",
          of_run.contains(key) ? "says something else about a run" : "is another value, too",
          "; rename the layer"));
      return layer == nullptr ? status : AtLayer(net, *layer, status);
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre
