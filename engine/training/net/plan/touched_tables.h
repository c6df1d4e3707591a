// touched_tables.h: embedding tables, of whose gradient a step touches few rows.  A pure function.
// Only these rows may be sent and, if the table is lazy or the optimizer has no state, updated.
#pragma once

#include <span>
#include <vector>

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// The first and the last node that use a parameter.  Backward reaches the first one last.
struct ParameterUsers {
  int first = -1, last = -1;
};
std::vector<ParameterUsers> UsersOfParameters(const NetSpec& net, size_t parameters);

struct TouchedTable {
  int parameter = 0;          // index into the ParameterSet
  int node = 0, indices = 0;  // the node and its state that names rows
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0;  // of the table
  int64_t batch_indices = 0;    // of a batch, on the rank with most samples
  int64_t step_indices = 0;     // of all batches of a step
  bool sent_by_rows = false;    // else the whole gradient is summed
};

// The parameter's table, or null.
const TouchedTable* TableOf(std::span<const TouchedTable> tables, int parameter);

// Rows are sent if all ranks', with repetitions, are at most 1/kWorthwhilePart of the table.  On
// one host, rows take some eight passes (to pinned memory, to all ranks, added, and back).  A
// shared sum takes three over the table.  Between hosts, rows send an eighth of its bytes.
inline constexpr int64_t kWorthwhilePart = 4;

// Returns tables that are lazy, or sent by rows if `can_send_rows` says that ranks can.  Without
// optimizer slots, also tables with more rows than a step can touch, as others may not change.
// Tables that several layers use are left out.
// Errors: InvalidArgument, at the layer, for a lazy table that other layers use too.
absl::StatusOr<std::vector<TouchedTable>> TouchedTables(const Parsed<NetConfig>& config,
                                                        const NetSpec& net,
                                                        const ParameterSet& parameters,
                                                        bool can_send_rows, bool has_slots);

}  // namespace gyre
