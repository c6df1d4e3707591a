#include "engine/training/net/plan/touched_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/sample_order.h"

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

const TouchedTable* TableOf(std::span<const TouchedTable> tables, int parameter) {
  const auto found = std::ranges::find(tables, parameter, &TouchedTable::parameter);
  return found == tables.end() ? nullptr : &*found;
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

}  // namespace gyre
