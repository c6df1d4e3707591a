#include "engine/training/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre {

namespace {

// What is told beside a mean.
std::vector<std::pair<std::string, double>> Beside(const Metric& metric) {
  const std::string before = metric.name == "loss" ? "" : absl::StrCat(metric.name, "_");
  std::vector<std::pair<std::string, double>> values;
  if (metric.perplexity) {
    values.emplace_back(absl::StrCat(before, "perplexity"), std::exp(metric.value()));
  }
  if (metric.bits_per_character) {
    values.emplace_back(absl::StrCat(before, "bits_per_character"),
                        metric.value() / std::numbers::ln2);
  }
  return values;
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

std::vector<std::pair<std::string, double>> NamedValues(const std::vector<Metric>& metrics) {
  std::vector<std::pair<std::string, double>> values;
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

}  // namespace gyre
