#include "engine/training/metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre {

bool HasLoss(const std::vector<Metric>& metrics) {
  return std::ranges::any_of(metrics, [](const Metric& metric) { return metric.is_loss; });
}

std::vector<Metric> MetricsOf(const NetSpec& net) {
  std::vector<Metric> metrics;
  for (const NetNode& node : net.nodes) {
    if (node.spec.metric < 0) continue;
    metrics.push_back({.name = node.config->name(),
                       .is_loss = node.spec.loss_output >= 0,
                       .weight = node.spec.loss_weight});
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
    if (!has_total || metric.name != "loss") values.emplace_back(metric.name, metric.value());
  }
  return values;
}

absl::Status CheckFinite(const std::vector<Metric>& metrics) {
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

std::string FormatMetrics(const std::vector<Metric>& metrics, absl::string_view prefix) {
  std::vector<std::string> parts;
  if (HasLoss(metrics)) {
    parts.push_back(absl::StrFormat("%sloss %.4f", prefix, TotalLoss(metrics)));
  }
  for (const Metric& metric : metrics) {
    if (metric.is_loss) continue;
    parts.push_back(absl::StrFormat("%s%s %.4f", prefix, metric.name, metric.value()));
  }
  return absl::StrJoin(parts, "  ");
}

}  // namespace gyre
