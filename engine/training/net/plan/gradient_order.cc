#include "engine/training/net/plan/gradient_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/math.h"
#include "memory/resident/memory_plan.h"

namespace gyre {
namespace {

void FindCompletion(std::span<const BucketedGradient> gradients, PlannedBucket& bucket) {
  if (!bucket.trains()) return;
  const auto order = [](const BucketedGradient& g) { return std::pair(g.node, -g.slice); };
  const BucketedGradient last =
      std::ranges::min(gradients.subspan(bucket.first, bucket.last - bucket.first), {}, order);
  bucket.node = last.node;
  bucket.slice = last.slice;
}

}  // namespace

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

absl::StatusOr<std::vector<TouchedTable>> TouchedTables(const Parsed<NetConfig>& config,
                                                        const NetSpec& net,
                                                        const ParameterSet& parameters,
                                                        bool can_send_rows, bool has_slots) {
  std::vector<TouchedTable> tables;
  const RunShape& shape = net.shape;
  const std::vector<ParameterUsers> users = UsersOfParameters(net, parameters.all().size());
  for (int n = 0; n < static_cast<int>(net.nodes.size()); ++n) {
    const NetNode& node = net.nodes[n];
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const StateSpec& spec = node.spec.states[s];
      if (!spec.trained() || spec.touched_rows < 0) continue;
      const int p = node.parameters[s];
      if (spec.lazy && shape.scales_by_norms) {
        return AtLayer(
            config, *node.config,
            absl::InvalidArgumentError(
                "lazy: lars and lamb move all rows by the norm of the whole table; leave "
                "lazy out, or take another optimizer"));
      }
      if (users[p].first != users[p].last) {
        if (!spec.lazy) continue;
        return AtLayer(
            config, *node.config,
            absl::InvalidArgumentError(absl::StrCat(
                "lazy: expected a table of its own, got \"", parameters.all()[p].name(),
                "\", which layer \"",
                net.nodes[users[p].first == n ? users[p].last : users[p].first].config->name(),
                "\" uses, too; leave lazy out")));
      }
      const int64_t a_sample =
          node.spec.states[spec.touched_rows].shape.elements() / std::max<int64_t>(shape.local, 1);
      TouchedTable table;
      table.parameter = p;
      table.node = n;
      table.indices = spec.touched_rows;
      table.dtype = spec.dtype;
      table.rows = spec.shape[0];
      table.width = spec.shape.elements() / table.rows;
      table.batch_indices = a_sample * ShareOf(shape.global, 0, shape.workers()).count;
      table.step_indices = table.batch_indices * shape.accumulate;
      const int64_t all_indices = table.step_indices * shape.ranks;
      table.sent_by_rows = can_send_rows && shape.ranks > 1 && !shape.shard_optimizer &&
                           all_indices * kWorthwhilePart <= table.rows;
      const bool may_skip_rows = !has_slots && all_indices < table.rows;
      if (spec.lazy || table.sent_by_rows || may_skip_rows) tables.push_back(table);
    }
  }
  return tables;
}

GradientOrder OrderGradients(const NetSpec& net, const ParameterSet& parameters,
                             std::span<const TouchedTable> tables, size_t bucket_bytes,
                             bool fit_buckets) {
  GradientOrder order;
  std::vector<size_t> bytes;
  const std::vector<ParameterUsers> users = UsersOfParameters(net, parameters.all().size());
  for (int n = static_cast<int>(net.nodes.size()) - 1; n >= 0; --n) {
    const NetNode& node = net.nodes[n];
    for (size_t s = 0; s < node.parameters.size(); ++s) {
      const int p = node.parameters[s];
      if (p < 0 || users[p].first != n || !node.spec.states[s].trained()) continue;
      order.gradients.push_back({.parameter = p,
                                 .node = n,
                                 .slice = LastSlice(node.spec, s),
                                 .count = parameters.all()[p].storage_elements()});
      bytes.push_back(parameters.all()[p].spec.size_bytes());
    }
  }
  const auto dtype_of = [&](size_t g) {
    return parameters.all()[order.gradients[g].parameter].spec.dtype;
  };
  const auto player_of = [&](size_t g) {
    const NetNode& node = net.nodes[order.gradients[g].node];
    return net.shape.players.empty() ? 0 : net.shape.PlayerOf(node.config->name());
  };
  const auto is_table = [&](size_t g) {
    const int parameter = order.gradients[g].parameter;
    return std::ranges::count(tables, parameter, &TouchedTable::parameter) > 0;
  };
  for (size_t first = 0, last = 0; first < bytes.size(); first = last) {
    last = first + 1;
    while (!is_table(first) && last < bytes.size() && !is_table(last) &&
           dtype_of(last) == dtype_of(first) && player_of(last) == player_of(first)) {
      ++last;
    }
    const auto some = std::span(bytes).subspan(first, last - first);
    for (GradientBucket bucket : (fit_buckets ? FitBuckets : AssignBuckets)(some, bucket_bytes)) {
      bucket.first += static_cast<int>(first);
      bucket.last += static_cast<int>(first);
      order.buckets.push_back({bucket, dtype_of(first)});
    }
  }
  for (size_t b = 0; b < order.buckets.size(); ++b) {
    PlannedBucket& bucket = order.buckets[b];
    const size_t element = SizeOf(bucket.dtype);
    size_t end = 0;
    for (int g = bucket.first; g < bucket.last; ++g) {
      const size_t at = RoundUp(end, kGroupAlignment);
      order.gradients[g].at = static_cast<int64_t>(at / element);
      order.gradients[g].bucket = static_cast<int>(b);
      end = at + bytes[g];
    }
    FindCompletion(order.gradients, bucket);
    bucket.elements = static_cast<int64_t>(end / element);
    bucket.parts = net.shape.ShardsOf(bucket.elements, bucket.dtype);
  }
  return order;
}

GradientOrder OrderOfTurn(const NetSpec& turn, const ParameterSet& parameters,
                          const GradientOrder& all) {
  const GradientOrder own = OrderGradients(turn, parameters, {}, /*bucket_bytes=*/1,
                                           /*fit_buckets=*/false);
  GradientOrder order;
  order.buckets = all.buckets;
  for (PlannedBucket& bucket : order.buckets) {
    const int first = static_cast<int>(order.gradients.size());
    for (int g = bucket.first; g < bucket.last; ++g) {
      const BucketedGradient& whole = all.gradients[g];
      const auto found =
          std::ranges::find(own.gradients, whole.parameter, &BucketedGradient::parameter);
      if (found == own.gradients.end()) continue;
      order.gradients.push_back(whole);
      order.gradients.back().node = found->node;
      order.gradients.back().slice = found->slice;
    }
    bucket.first = first;
    bucket.last = static_cast<int>(order.gradients.size());
    FindCompletion(order.gradients, bucket);
  }
  return order;
}

const BucketedGradient& GradientOf(const GradientOrder& order, int parameter) {
  return *std::ranges::find(order.gradients, parameter, &BucketedGradient::parameter);
}

std::vector<std::string> NamesIn(const GradientOrder& order, const ParameterSet& parameters,
                                 int bucket) {
  std::vector<std::string> names;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    names.push_back(parameters.all()[order.gradients[g].parameter].name());
  }
  return names;
}

std::vector<ParameterRange> RangesIn(const GradientOrder& order, int bucket, ElementRange part) {
  std::vector<ParameterRange> pieces;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const auto& [parameter, node, slice, count, at, of_bucket] = order.gradients[g];
    const ElementRange both = {std::max(at, part.begin), std::min(at + count, part.end)};
    if (both.count() <= 0) continue;
    pieces.push_back({parameter, both.begin - at, both.begin, both.count()});
  }
  return pieces;
}

}  // namespace gyre
