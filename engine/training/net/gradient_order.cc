#include "engine/training/net/gradient_order.h"

#include <algorithm>

#include "engine/runtime/math.h"
#include "memory/memory_plan.h"

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
  for (const GradientBucket& bucket : order.buckets) {
    size_t end = 0, element = 1;
    for (int g = bucket.first; g < bucket.last; ++g) {
      element = SizeOf(parameters.all()[order.gradients[g].parameter].spec.dtype);
      const size_t at = RoundUp(end, kGroupAlignment);
      order.gradients[g].at = static_cast<int64_t>(at / element);
      end = at + bytes[g];
    }
    order.elements.push_back(static_cast<int64_t>(end / element));
  }
  return order;
}

std::vector<ParameterPiece> PiecesIn(const GradientOrder& order, const ParameterSet& parameters,
                                     int bucket, ElementRange part) {
  std::vector<ParameterPiece> pieces;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const auto [parameter, node, at] = order.gradients[g];
    const int64_t end = at + parameters.all()[parameter].storage_elements();
    const ElementRange both = {std::max(at, part.begin), std::min(end, part.end)};
    if (both.count() <= 0) continue;
    pieces.push_back({parameter, both.begin - at, both.begin, both.count()});
  }
  return pieces;
}

}  // namespace gyre
