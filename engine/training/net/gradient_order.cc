#include "engine/training/net/gradient_order.h"

namespace gyre {

std::vector<ParameterUsers> UsersOfParameters(const NetSpec& net, size_t parameters) {
  std::vector<ParameterUsers> users(parameters);
  for (int n = 0; n < static_cast<int>(net.nodes.size()); ++n) {
    for (int p : net.nodes[n].parameters) {
      if (p < 0) continue;
      if (users[p].first < 0) users[p].first = n;
      users[p].last = n;
    }
  }
  return users;
}

GradientOrder OrderGradients(const NetSpec& net, const ParameterSet& parameters,
                             size_t bucket_bytes, bool fit_buckets) {
  GradientOrder order;
  std::vector<size_t> bytes;
  const std::vector<ParameterUsers> users = UsersOfParameters(net, parameters.all().size());
  for (int n = static_cast<int>(net.nodes.size()) - 1; n >= 0; --n) {
    for (int p : net.nodes[n].parameters) {
      if (p < 0 || users[p].first != n || !parameters.all()[p].trained()) continue;
      order.gradients.push_back({.parameter = p, .node = n});
      bytes.push_back(parameters.all()[p].spec.size_bytes());
    }
  }
  order.buckets = (fit_buckets ? FitBuckets : AssignBuckets)(bytes, bucket_bytes);
  return order;
}

}  // namespace gyre
