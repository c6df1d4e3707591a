// metrics.h: sums over samples that a net measures, and their means.  record_metrics.h has the test
// metrics that are no means.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/training/net/infer/net_spec.h"
#include "models/schema/parse.h"

namespace gyre {

using NamedNumbers = std::vector<std::pair<std::string, double>>;

// Sums over samples of a loss or a hit count.
struct Metric {
  std::string name;  // the layer's
  bool is_loss = false;
  double weight = 1;  // of a loss in the run's total
  // Reported beside the mean m: e^m, and m / ln 2.
  bool perplexity = false, bits_per_character = false;
  double sum = 0, count = 0;
  std::string undefined = {};  // why there is no value; "": there is one
  double value() const { return count == 0 ? 0 : sum / count; }
};

// The means of a net in node order, all zero.
std::vector<Metric> MetricsOf(const NetSpec& net);
bool HasLoss(const std::vector<Metric>& metrics);
// The weighted sum of the losses' values.
double TotalLoss(const std::vector<Metric>& metrics);
// The values to report by name.  If there is a loss, the total comes first, as "loss".  Then comes
// each defined value, unweighted, with NAME_perplexity and the like.  The total replaces the value
// of a layer "loss", of which "perplexity" has no NAME_.
NamedNumbers NamedValues(const std::vector<Metric>& metrics);
// Errors: Internal naming the first non-finite one.
absl::Status CheckFiniteMetrics(const std::vector<Metric>& metrics);
// Errors: InvalidArgument naming the layer whose value would have the key of another value in
// metrics.jsonl, or a key of the run.  `test` is null if there are no tests.
absl::Status CheckMetricKeys(const Parsed<NetConfig>& net, const NetSpec& train,
                             const NetSpec* test);
// Adds {sum, count} of each metric.
void AddSums(const double* sums, std::vector<Metric>& metrics);
// "loss 0.4567", "accuracy 0.9012".  The total loss comes first, then each metric by its layer.
std::vector<std::string> FormatMetrics(const std::vector<Metric>& metrics,
                                       absl::string_view prefix);

}  // namespace gyre
