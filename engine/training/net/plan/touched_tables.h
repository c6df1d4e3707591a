// touched_tables.h: the embedding tables of a training net: parameters of whose gradient a step
// makes a few rows, those that its batch names.
//
// Several ranks can send these rows alone, and an optimizer that would do nothing to the others, or
// a table that is lazy, needs these alone.  A pure function of the plan.
#pragma once

#include <vector>

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// The nodes that use a parameter, by position; backward comes to the first of them last.
struct ParameterUsers {
  int first = -1, last = -1;
};
std::vector<ParameterUsers> UsersOfParameters(const NetSpec& net, size_t parameters);

struct TouchedTable {
  int parameter = 0;          // index into the ParameterSet
  int node = 0, indices = 0;  // the state of it that names rows
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0;  // of the table
  int64_t batch_indices = 0;    // of a batch on the rank that has most samples
  int64_t step_indices = 0;     // and of a step's batches together
  bool sent_by_rows = false;    // else the gradient is summed as others are
};

// All ranks' rows, as if no two were the same, may be this part of the table's to be sent: on one
// host some eight passes over them (to pinned memory, to all ranks, added, and back) stand against
// three of a shared sum over the table, and between hosts an eighth of its bytes is sent.
inline constexpr int64_t kWorthwhilePart = 4;

// Those that one layer uses and that are lazy, or sent by rows, or have more rows than a step can
// touch and an optimizer without state, which may do nothing to the others.  can_send_rows: whether
// ranks have what that takes.  Errors: InvalidArgument, at the layer, for a lazy table that others
// use, too.
absl::StatusOr<std::vector<TouchedTable>> TouchedTables(const Parsed<NetConfig>& config,
                                                        const NetSpec& net,
                                                        const ParameterSet& parameters,
                                                        bool can_send_rows, bool has_slots);

}  // namespace gyre
