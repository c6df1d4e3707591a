// metrics.h: what a net measures on its way: sums over samples, and the means that people read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/training/net/net_spec.h"

namespace gyre {

// The sums behind a mean: over samples, of a loss or a hit count.
struct Metric {
  std::string name;  // the layer's
  bool is_loss = false;
  double weight = 1;  // of a loss in the run's total
  double sum = 0, count = 0;
  double value() const { return count == 0 ? 0 : sum / count; }
};

// The metrics of a net in node order, all zero.
std::vector<Metric> MetricsOf(const NetSpec& net);
bool HasLoss(const std::vector<Metric>& metrics);
// The weighted sum of the losses' values.
double TotalLoss(const std::vector<Metric>& metrics);
// What is told by name: the total as "loss", if there is a loss, then each value, unweighted; one
// of a layer "loss" gives way to the total.
std::vector<std::pair<std::string, double>> NamedValues(const std::vector<Metric>& metrics);
// Errors: Internal naming the first that is not finite.
absl::Status CheckFinite(const std::vector<Metric>& metrics);
// Adds {sum, count} of each metric.
void AddSums(const double* sums, std::vector<Metric>& metrics);
// "loss 0.4567  accuracy 0.9012": losses, then metrics, by their layers' names.
std::string FormatMetrics(const std::vector<Metric>& metrics, absl::string_view prefix);

}  // namespace gyre
