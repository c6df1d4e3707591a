// metrics.h: what a net measures on its way: sums over samples, and the means that people read; and
// of a test what is no mean, which record_metrics.h makes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// The sums behind a mean: over samples, of a loss or a hit count.
struct Metric {
  std::string name;  // the layer's
  bool is_loss = false;
  double weight = 1;  // of a loss in the run's total
  // Told beside the mean m: e^m, and m / ln 2.
  bool perplexity = false, bits_per_character = false;
  double sum = 0, count = 0;
  std::string undefined = {};  // why there is no value, where there is none
  double value() const { return count == 0 ? 0 : sum / count; }
};

// The means of a net in node order, all zero.
std::vector<Metric> MetricsOf(const NetSpec& net);
bool HasLoss(const std::vector<Metric>& metrics);
// The weighted sum of the losses' values.
double TotalLoss(const std::vector<Metric>& metrics);
// What is told by name: the total as "loss", if there is a loss, then each value there is,
// unweighted, and what is told beside it: NAME_perplexity, or perplexity of a layer "loss", whose
// own value gives way to the total.
std::vector<std::pair<std::string, double>> NamedValues(const std::vector<Metric>& metrics);
// Errors: Internal naming the first that is not finite.
absl::Status CheckFiniteMetrics(const std::vector<Metric>& metrics);
// Adds {sum, count} of each metric.
void AddSums(const double* sums, std::vector<Metric>& metrics);
// "loss 0.4567", "accuracy 0.9012": losses, then metrics, by their layers' names.
std::vector<std::string> FormatMetrics(const std::vector<Metric>& metrics,
                                       absl::string_view prefix);

}  // namespace gyre
